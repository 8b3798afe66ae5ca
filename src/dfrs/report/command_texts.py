"""Users' commands and their answers in words."""

from dfrs.model.elastic import Answer, Answers, CommandKind

_ANSWERS = {
    Answer.UNKNOWN: "refused: the job was not known yet",
    Answer.ENDED: "refused: the job was done",
    Answer.LIMIT: "refused: one job may have no more commands granted",
    Answer.INELASTIC: "refused: the policy processes no commands",
    Answer.NO_ROOM: "refused: there were no nodes for more tasks",
    Answer.TOO_LARGE: "refused: so many tasks could never run here",
}


def command_text(answers: Answers, k: int) -> str:
    """What the k-th command asked for, and what became of it."""
    kind, answer = CommandKind(int(answers.kind[k])), Answer(int(answers.answer[k]))
    in_time = kind in {CommandKind.ET, CommandKind.RT}
    unit = "s" if in_time else "tasks"
    asked = f"command {kind.name}, {float(answers.amount[k]):g} {unit} "
    asked += "more" if kind in {CommandKind.ET, CommandKind.EP} else "less"
    if answer == Answer.CUT:
        change = float(answers.change_s[k]) if in_time else float(answers.change_tasks[k])
        return f"{asked}: granted in part, {abs(change):g} {unit}"
    return f"{asked}: {_ANSWERS.get(answer, 'granted')}"


def commands_text(answers: Answers, job_id: int) -> str:
    """How many commands on the job there were, and how many of them were granted; empty if there were none."""
    mine = answers.job_id == job_id
    count, granted = int(mine.sum()), int(answers.granted[mine].sum())
    return f"{count} command{'s' if count > 1 else ''}, {granted} granted" if count else ""
