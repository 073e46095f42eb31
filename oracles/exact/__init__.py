"""Laws and distances by quadrature, without samples."""
