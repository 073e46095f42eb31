"""How pages write and draw rules, metrics, nets and numbers."""
