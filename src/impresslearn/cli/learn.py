"""`impresslearn learn`: tasks into a store, which is created where there is none."""

import warnings
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from impresslearn.cli.arguments import AsJson, Device, FileOptions, Quiet, Store, option_groups
from impresslearn.cli.learn_options import StoreOptions, TaskOptions, TrainingOptions
from impresslearn.cli.output import counted, echo, error, info, print_json
from impresslearn.errors import ImpressLearnError, InputError, InputScaleWarning
from impresslearn.tables import duration, percent, size

if TYPE_CHECKING:
    from impresslearn.networks import Backbone

NAMED, WORST = 5, 3
"""Failed tasks, and least accurate ones, that the last line names."""
FEW = 200
"""Examples up to which a task is better off with the preset few_labels, over trained masks."""


@option_groups
def learn(
    store: Store,
    sources: TaskOptions,
    training: TrainingOptions,
    files: FileOptions,
    new: StoreOptions,
    device: Device = "cpu",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn tasks into a store; a new one is created.

    Each task is kept as soon as it is learned, and a task that is there already, learned from the
    same data, is skipped: after an interruption, run the same command again. Of several tasks, one
    that cannot be learned is told and the next one learned. Tasks that mix masks need some first:
    learn the first tasks of a new store with --basis, or give it --random-masks.

    Example: impresslearn learn shops.impress --tasks shops/ --preset per_weight
    """
    from impresslearn.cli.learn_many import learn_jobs
    from impresslearn.cli.new_store import prepare_store

    warnings.simplefilter("ignore", InputScaleWarning)  # it is told in the command line's words
    jobs, given = sources.jobs(), files.reader()
    network = new.own_network()
    spoken = not quiet and not as_json
    tell = (lambda line: None) if quiet else info
    created = prepare_store(store, jobs, given, training, new.settings(), network, tell)
    if created is not None and spoken:
        echo(f"created {store}: {_network(created.backbone)}")
    done: list[dict[str, Any]] = []
    try:
        how: dict[str, Any] = {"module": network, "device": device, "progress": not quiet}
        how["named"] = sources.tasks is None
        for told in learn_jobs(store, jobs, given, training, **how):
            done.append(told)
            if told["status"] == "failed":
                error(told["task"], told["error"])
            elif spoken:
                echo(_line(told))
    except (KeyboardInterrupt, ImpressLearnError) as failure:
        kept = f"{len(done)} of {len(jobs)} tasks are kept in {store}"
        if isinstance(failure, KeyboardInterrupt):
            info(f"{kept}; run the same command again to carry on")
        elif done:
            info(f"{kept}; those behind them were not looked at")
        raise
    failed = [each for each in done if each["status"] == "failed"]
    if not quiet and (advice := _advice(store, done)):
        info(advice)
    if as_json:
        tasks = [{**each, "error": str(each["error"])} if each in failed else each for each in done]
        print_json({"store": str(store), "created": created is not None, "tasks": tasks})
    elif spoken and len(done) > 1:
        echo(_summary(done))
    if failed:
        names = ", ".join(each["task"] for each in failed[:NAMED])
        more = f" and {len(failed) - NAMED:,} more" if len(failed) > NAMED else ""
        raise InputError(f"{len(failed):,} of {len(jobs):,} tasks failed: {names}{more}")


def _advice(store: Path, done: list[dict[str, Any]]) -> str | None:
    """Which preset fits tasks that were learned from few examples over masks of basis tasks."""
    from impresslearn.store import describe_store

    learned = (each for each in done if each["status"] == each.get("role") == "learned")
    few = [each for each in learned if each["examples"] <= FEW]
    told = describe_store(store) if few else {}
    trained = few and told["masks"] > told["masks_as_seed"]
    if not trained or told["settings"]["granularity"] not in ("layer", "unit"):
        return None
    if told["settings"].get("max_bytes") is not None:  # somebody weighed the ways already
        return None
    named = f"{few[0]['task']} has {few[0]['examples']:,} examples"
    return f"{named}: a new store with --preset few_labels, basis tasks first, fits {FEW} or fewer"


def _summary(done: list[dict[str, Any]]) -> str:
    """How many tasks were learned, and what they take, in a line."""
    counts = Counter(each["status"] for each in done)
    kept = [each for each in done if each["status"] != "failed"]
    line = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    sizes = [each["bytes"] for each in kept]
    line += f"; {size(sum(sizes))} in all"
    if sizes:
        line += f", {size(min(sizes))} to {size(max(sizes))} a task"
    tested = sorted(
        (each for each in kept if each["accuracy"] is not None), key=lambda each: each["accuracy"]
    )
    if not tested:
        return line
    of = "in the mean" if len(tested) == len(kept) else f"on {len(tested):,} with tests"
    line += f", accuracy {percent(fmean(each['accuracy'] for each in tested))} {of}"
    least = (f"{each['task']} {percent(each['accuracy'])}" for each in tested[:WORST])
    return f"{line}, least of {', '.join(least)}" if len(tested) > WORST else line


def _network(backbone: "Backbone") -> str:
    sizes = "x".join("*" if size is None else str(size) for size in backbone.input_shape or ())
    taken = f" for {sizes} inputs" if sizes else ""
    weights = f"{backbone.num_maskable:,} weights"
    outputs = f"{backbone.num_classes} outputs" if backbone.most_classes else "a head for each task"
    return f"{backbone.name}{taken}, {outputs}, {weights}"


def _line(told: dict[str, Any]) -> str:
    """What became of a task, for a person."""
    line = f"{told['task']}: {told['status']}"
    if told["status"] != "already learned":
        line += f" in {duration(told['seconds'])} from {told['examples']:,} examples"
    elif told["version"] != told["present_version"]:
        line += f" as version {told['version']}, which version {told['present_version']} replaced"
    line += f", {told['classes']} classes, {size(told['bytes'])}"
    if told["bit_price_raised"]:
        line += f" (at a bit price of {told['bit_price']:.3g}, to fit)"
    if told["accuracy"] is not None:
        line += f", accuracy {percent(told['accuracy'])}"
    if told["accuracy_before"] is not None:
        line += f" ({percent(told['accuracy_before'])} before the update)"
    if off := told["columns_off_scale"]:
        line += f"; {counted(off, 'column')} far off the store's mean and std, by ten deviations "
        line += "and more: make a new store with --mean and --std, or of typical data"
    if absent := told["absent_classes"]:
        from impresslearn.data.paths import some

        line += f"; there was no example of {len(absent)} of them, {some(absent)}, "
        line += "which it is likely to have unlearned: update it with examples of all classes"
    return line
