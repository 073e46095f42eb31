"""The run time of propagation: the asv suite and the runtime table.

asv imports these modules for other commits too, under the name ``runtime``. At import time they therefore use
only the public interface of `sdp_ref` and relative imports.
"""
