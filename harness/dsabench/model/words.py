"""Words that generated questions are made of.

Whoever changes one changes the questions of `demo`, `needle` and the tasks of the trained model: each eval then takes a new
harness id.
"""

NAMES = (
    "Ada", "Ben", "Chloe", "David", "Elif", "Farid", "Grace", "Hugo", "Ines", "Jun", "Kofi", "Lena",
)  # fmt: skip
THINGS = (
    "apples", "books", "coins", "stamps", "cards", "shells", "marbles", "pencils", "stickers", "buttons",
)  # fmt: skip
COLOURS = (
    "amber", "azure", "beige", "black", "bronze", "coral", "crimson", "cyan", "emerald", "gold", "grey", "indigo",
    "ivory", "jade", "lilac", "magenta",
)  # fmt: skip
PLACES = (
    "archive", "cellar", "depot", "gallery", "hangar", "kiosk", "library", "mill", "museum", "observatory",
    "pavilion", "stable", "studio", "vault",
)  # fmt: skip
WORDS = (
    "river", "stone", "market", "winter", "letter", "garden", "window", "engine", "bridge", "paper", "road", "field",
    "harbour", "music", "clock", "table", "summer", "teacher", "village", "mountain", "copper", "silver", "basket",
    "candle", "forest", "island", "kitchen", "ladder", "meadow", "needle", "orchard", "pocket", "quarry", "ribbon",
    "saddle", "tunnel", "valley", "wagon", "yellow", "anchor", "barrel", "canvas", "dealer", "effort", "fabric",
    "gravel", "hammer", "insect", "jacket", "kettle", "lantern", "mirror", "nation", "office", "pencil", "quiver",
    "rocket", "shadow", "timber", "uncle", "vessel", "weather",
)  # fmt: skip
