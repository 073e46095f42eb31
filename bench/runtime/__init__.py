"""How long propagation takes: the asv suite, and the runtime table.

asv imports each module here at other commits than this one, under the name ``runtime``. So at import
time they need the public face of `sdp_ref` alone and name each other relatively.
"""
