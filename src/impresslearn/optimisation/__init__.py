"""How anything is optimised: one loop, its recipe, its objectives."""
