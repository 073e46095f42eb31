"""Which published models the rules take, what they approximate there, and how long that takes.

    pip install --no-deps --target zoo torchvision==0.28.0 timm==1.0.31 transformers==5.23.0
    pip install --target zoo pillow safetensors huggingface_hub tokenizers pyyaml regex requests
    python -m benchmarks.models run zoo
    python -m benchmarks.models agree zoo

measure what docs/models.csv and docs/models_agreement.csv do not have yet (stopped and started again they go
on where they were), and write the tables of docs/models.md from them; ``table`` writes these alone, and
``choose zoo`` the list of timm's models, timm.csv. Weights are random. torchvision's compiled ops, which no
classifier calls, need not load.
"""
