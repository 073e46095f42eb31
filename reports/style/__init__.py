"""How rules, metrics, nets and numbers are written and drawn for people."""
