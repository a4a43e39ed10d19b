"""`rstore backup`: a repository of snapshots, and what becomes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from engine.format.quantities import moment
from rstore_cli._common import FOUND, OK, parse_duration, parse_time, settings_of
from rstore_cli.backup_create import create
from rstore_cli.backup_forget import forget_archived
from rstore_cli.backup_text import show_check, show_lags, show_list, show_snapshot
from rstore_cli.change import agreed
from rstore_cli.render import count, printable, size
from rstore_cli.repository import KeyCommand, KeyFile, Repo, location_of, open_repo, secret_of

if TYPE_CHECKING:
    from engine.backup.prune import UnusedObjects
    from rstore_cli.render import Output

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    help="Back stores up into a repository: a directory, or S3, GCS or Azure.",
)
key_app = typer.Typer(add_completion=False, rich_markup_mode=None, help="List, add or remove keys of a repository.")
app.add_typer(key_app, name="key")
StoreName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Name of the store in the repository (default: HOST:DIR).")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing (exit code 1).")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]


def _keep(option: str, what: str) -> Any:
    return typer.Option(option, metavar="N", min=0, help=f"Keep the newest snapshot of each of {what}.")


@app.command()
def init(
    context: typer.Context,
    repo: Repo = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    unencrypted: Annotated[
        bool, typer.Option("--unencrypted", help="Encrypt nothing: who can read the repository reads all messages.")
    ] = False,
) -> None:
    """Make an empty repository, encrypted with a key.

    The key is taken from --key-file, --key-command or RSTORE_REPO_KEY. Without it nothing can be restored: keep it
    where the broker's disk is not.
    """
    output = settings_of(context).output()

    from engine.backup.create.create import user_and_host
    from engine.backup.objects.place import objects_at
    from engine.backup.repository import create_repository
    from engine.files.disk import Disk

    secret = secret_of(key_file, key_command)
    if unencrypted == (secret is not None):
        raise InvalidArgument(
            "a key and --unencrypted exclude each other" if unencrypted else "a key is required",
            hint="--key-file FILE, --key-command COMMAND or RSTORE_REPO_KEY; --unencrypted makes one without",
        )
    repository = create_repository(objects_at(Disk(), location_of(repo)), secret, _now(), user_and_host())
    if output.json:
        output.document(
            {
                "repository": repository.where,
                "id": repository.facts.repository_id,
                "encrypted": repository.facts.is_encrypted,
            }
        )
    else:
        kind = "encrypted" if repository.facts.is_encrypted else "not encrypted"
        output.text(f"Repository {repository.facts.repository_id} is made ({kind}): {repository.where}")


app.command()(create)


@app.command()
def status(
    context: typer.Context,
    repo: Repo = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    name: StoreName = None,
    max_lag: Annotated[
        str | None, typer.Option("--max-lag", metavar="DURATION", help="Exit code 1 where a store's lag is longer.")
    ] = None,
) -> None:
    """Show how old the newest snapshot of each store is.

    For a store on this machine the lag is the age of the oldest message that the snapshot has not; for others the time
    since the snapshot was begun. Exit code 1 when one is longer than --max-lag, or a snapshot can't be read.
    """
    output = settings_of(context).output()
    most_ms = None if max_lag is None else parse_duration(max_lag, "--max-lag")
    repository = open_repo(repo, key_file, key_command)

    from engine.backup.status import backup_lags
    from engine.files.disk import Disk

    lags, unreadable = backup_lags(Disk(), repository, name)
    if output.json:
        for one in lags:
            output.line(one.to_json(most_ms))
    else:
        show_lags(output, lags, most_ms)
    for note in unreadable:
        output.warn(note)
    late = most_ms is not None and (not lags or any(one.lag_ms > most_ms for one in lags))
    raise typer.Exit(FOUND if late or unreadable else OK)


@app.command("list")
def list_(
    context: typer.Context,
    repo: Repo = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    name: StoreName = None,
) -> None:
    """List the snapshots of a repository, oldest first."""
    output = settings_of(context).output()
    repository = open_repo(repo, key_file, key_command)

    from engine.backup.listing import snapshots_of

    listed = snapshots_of(repository, name)
    if output.json:
        for one in listed:
            output.line(one.to_json())
    else:
        show_list(output, listed)
    raise typer.Exit(FOUND if any(one.error is not None for one in listed) else OK)


@app.command()
def show(
    context: typer.Context,
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Its ID, or the beginning of it; or latest.")],
    repo: Repo = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    name: StoreName = None,
) -> None:
    """Show a snapshot: its segments, files and damage."""
    output = settings_of(context).output()
    repository = open_repo(repo, key_file, key_command)

    from engine.backup.listing import describe

    detail = describe(repository, *repository.find(snapshot, name))
    if output.json:
        output.document(detail.to_json())
    else:
        show_snapshot(output, detail)


@app.command()
def check(
    context: typer.Context,
    repo: Repo = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    read_data: Annotated[
        str | None,
        typer.Option("--read-data", metavar="PERCENT", help="Also read this share of the pieces, others each time."),
    ] = None,
    read_all: Annotated[bool, typer.Option("--all", help="Read every piece.")] = False,
) -> None:
    """Check that all is there that snapshots need, and with --read-data or --all that it is sound.

    Exit code 1 when something is missing or damaged.
    """
    output = settings_of(context).output()
    if read_data is not None and read_all:
        raise InvalidArgument("--read-data excludes --all")
    share = 1.0 if read_all else _share(read_data)
    repository = open_repo(repo, key_file, key_command)

    from engine.backup.check import check_repository

    with output.progress("check", is_bytes=False) as tick:
        result = check_repository(repository, share, progress=tick)
    if output.json:
        output.document(result.to_json())
    else:
        show_check(output, result)
    raise typer.Exit(FOUND if result.bad else OK)


@app.command()
def forget(
    context: typer.Context,
    snapshots: Annotated[list[str] | None, typer.Argument(metavar="[SNAPSHOT]...", help="Snapshots to remove.")] = None,
    repo: Repo = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Only what is of this store (default: of each).")
    ] = None,
    archived_before: Annotated[
        str | None,
        typer.Option(
            "--archived-before",
            metavar="TIME",
            help="Remove no snapshots, but the oldest archived segments: those whose messages were all stored before.",
        ),
    ] = None,
    last: Annotated[int, typer.Option("--keep-last", metavar="N", min=0, help="Keep the newest N snapshots.")] = 0,
    hourly: Annotated[int, _keep("--keep-hourly", "N hours")] = 0,
    daily: Annotated[int, _keep("--keep-daily", "N days")] = 0,
    weekly: Annotated[int, _keep("--keep-weekly", "N weeks")] = 0,
    monthly: Annotated[int, _keep("--keep-monthly", "N months")] = 0,
    yearly: Annotated[int, _keep("--keep-yearly", "N years")] = 0,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Remove snapshots: those that are named, or all that no --keep option keeps, of each store.

    Hours, days, weeks and months are UTC's. Space is freed by rstore backup prune.

    With --archived-before TIME segments of archives are removed, which no snapshot and no store has: from the beginning
    of each archive on, up to the first that has a message stored at that time or later. Nobody else may work in the
    repository meanwhile (exit code 3).
    """
    output = settings_of(context).output()

    from engine.backup.retention import Keep

    keeps = Keep(last, hourly, daily, weekly, monthly, yearly)
    if archived_before is not None:
        if snapshots or keeps:
            raise InvalidArgument("--archived-before excludes snapshots and --keep options", hint="run forget twice")
        before_ms = parse_time(archived_before, "--archived-before")
        forget_archived(output, open_repo(repo, key_file, key_command), before_ms, name, dry_run=dry_run, yes=yes)

    from engine.backup.prune import forget as forget_them
    from engine.backup.prune import plan_forget

    repository = open_repo(repo, key_file, key_command)
    plan = plan_forget(repository, snapshots or (), keeps, name)
    if not output.json:
        for one, snapshot in plan.forgotten:
            output.text(f"remove {one.short}  {moment(one.time_ms)}  {printable(snapshot.store)}")
        output.text(f"{count(len(plan.forgotten), 'snapshot')} to remove, {count(len(plan.stay), 'snapshot')} to keep")
    done = bool(plan.forgotten) and not dry_run and (yes or agreed(output, "forget"))
    if done:
        forget_them(repository, plan)
    if output.json:
        output.document({**plan.to_json(), "dryRun": dry_run})
    elif done:
        output.text("Done. Next: rstore backup prune")
    raise typer.Exit(FOUND if plan.forgotten and not done else OK)


@app.command()
def prune(
    context: typer.Context,
    repo: Repo = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Free the space of what no snapshot needs.

    Nobody else may work in the repository meanwhile (exit code 3). It refuses while a snapshot can't be read.
    """
    output = settings_of(context).output()
    repository = open_repo(repo, key_file, key_command)

    from engine.backup.prune import prune as remove_unused

    answers: list[bool] = []

    def agrees(plan: UnusedObjects) -> bool:
        if not output.json:
            _show_prune(output, plan)
        answers.append(not dry_run and (yes or agreed(output, "prune")))
        return answers[0]

    plan = remove_unused(repository, agrees)
    done = bool(answers) and answers[0]
    if output.json:
        output.document({**plan.to_json(), "dryRun": dry_run})
    elif not plan.names:
        output.text("Nothing to remove.")
    elif done:
        output.text(f"Done: {size(plan.size)} freed.")
    raise typer.Exit(FOUND if plan.names and not done else OK)


def _show_prune(output: Output, plan: UnusedObjects) -> None:
    output.text(f"{count(len(plan.names), 'object')} ({size(plan.size)}) to remove, {size(plan.used)} to keep")


@key_app.command("list")
def key_list(
    context: typer.Context, repo: Repo = None, key_file: KeyFile = None, key_command: KeyCommand = None
) -> None:
    """List the keys that open the repository; * marks the one that was given."""
    output = settings_of(context).output()
    repository = open_repo(repo, key_file, key_command)

    from engine.backup.keys import slots

    for one in slots(repository.objects, repository.facts.repository_id):
        is_own = one.slot_id == repository.slot_id
        if output.json:
            output.line({"key": one.slot_id, "created": one.created, "by": one.by, "given": is_own})
        else:
            output.text(f"{'*' if is_own else ' '} {one.slot_id}  {printable(one.created)}  {printable(one.by)}")


@key_app.command("add")
def key_add(
    context: typer.Context,
    new_key_file: Annotated[Path, typer.Option("--new-key-file", metavar="FILE", help="File with the further key.")],
    repo: Repo = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
) -> None:
    """Let a further key open the repository. To replace a key, add the new one, then remove the old one with it."""
    output = settings_of(context).output()
    repository = open_repo(repo, key_file, key_command)
    if not repository.facts.is_encrypted:
        raise InvalidArgument("the repository is not encrypted", hint="make one with a key: rstore backup init")

    from engine.backup.create.create import user_and_host
    from engine.backup.keys import add_slot

    further = secret_of(new_key_file, None)
    assert further is not None
    facts = repository.facts
    slot = add_slot(repository.objects, facts.repository_id, repository.main_key, further, _now(), user_and_host())
    if output.json:
        output.document({"key": slot.slot_id})
    else:
        output.text(f"Key {slot.slot_id} opens the repository from now on.")


@key_app.command("remove")
def key_remove(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY")],
    repo: Repo = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
) -> None:
    """Let a key open the repository no more; the one that is given can't be removed."""
    output = settings_of(context).output()
    repository = open_repo(repo, key_file, key_command)

    from engine.backup.keys import remove_slot

    remove_slot(repository.objects, repository.facts.repository_id, key, repository.slot_id or "")
    if output.json:
        output.document({"key": key})
    else:
        output.text(f"Key {key} is removed.")


def _share(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 < percent <= 100:
        raise InvalidArgument(f"--read-data: {text!r} is no share", hint="such as 5%")
    return percent / 100


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
