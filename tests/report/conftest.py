import pytest


@pytest.fixture
def record():
    """A made-up result record: two basis tasks, three new ones, two masks, three layers."""
    names = ["rotated-0", "rotated-90", "rotated-30", "rotated-60", "rotated-120"]
    return {
        "tasks": [
            {
                "name": name,
                "role": "basis" if position < 2 else "new",
                "accuracy": 0.9 + position / 100,
                "supsup_accuracy": 0.95,
                "single_mask_accuracy": None if position < 2 else 0.25,
                "bytes": 4200 if position < 2 else 48,
            }
            for position, name in enumerate(names)
        ],
        "summary": {
            "new_task_accuracy": 0.93,
            "supsup_accuracy": 0.95,
            "single_mask_accuracy": 0.25,
            "forgetting": 0.0,
            "bytes_per_new_task": 48,
            "bytes_per_supsup_mask": 4200,
            "task_inference_accuracy": None,
            "seconds": 12.3,
        },
        "settings": {"seed": 0, "recipe": {"learning_rate": 0.02}, "verbose": False},
        "versions": {"python": "3.11", "torch": "2.13.0"},
        "coefficients": {
            "masks": names[:2],
            "layers": ["fc1", "fc2", "head"],
            "tasks": names[2:],
            "values": [[[0.1, -0.2, 0.3], [0.4, 0.5, -1.5]] for _ in range(3)],
        },
    }
