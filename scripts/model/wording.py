"""From templates to instructions.

A template is text with alternatives `[a|b|]` and slots `{name}`. The templates of each list are split: every fifth is
held out, so training and held-out instructions come from disjoint templates. Standard library only.
"""

import re

INNERMOST = re.compile(r"\[([^\[\]]*)\]")

OPENINGS = [
    "", "", "", "", "", "", "", "", "", "", "", "",
    "please ", "please ", "could you ", "can you ", "I need you to ", "I want you to ", "your task: ", "task: ",
    "would you ", "help me: ", "quick one: ", "now ", "kindly ", "next job: ", "go ahead and ", "you should ",
]
CLOSINGS = [
    ".", ".", ".", ".", ".", ".", ".", "", "", ".", " please.", ". Thanks.", ". Thank you!", "!", ". That is all.", ", thanks.",
    ". Nothing else is needed.", ". Paths are relative to the work directory.", ". Keep everything else unchanged.",
    " in the current directory.", " in this directory.", ". No explanation needed.",
]
CONTEXTS = [
    "I am tidying up a small project.", "We prepare the demo for {word}.", "This belongs to the {word} project.", "{name} asked for this.",
    "The team needs it for the {word} meeting.", "I just started on a new machine.", "A colleague called {name} will look at it later.",
    "It is part of a longer clean-up.", "We test the tools today.", "This is for the course on {word}.", "Work in the current folder.",
]
INTROS = [
    "There is a file {a} [here|in the current directory|in this folder|].", "The [working |current |]directory [has|holds|contains] [a|the] file {a}.",
    "You [have|find] a file {a}[| with several lines| with some text| with data].", "The file {a} [holds|contains] {d}.", "{a} [holds|contains] {d}.",
    "In this directory [there is|lies] {a}[| with {d}].", "A file [named|called] {a} [exists|is there][|, it holds {d}].", "We have {a}, [a file with|which holds] {d}.",
    "{name} [left|made] a file {a} [here|with {d}].", "The file {a} has {d}.",
]
DESCRIPTIONS = [
    "one number per line", "one word per line", "a list of names", "several lines of text", "the data of the {word} project", "some records", "log lines",
    "one entry per line", "the settings of {word}", "a few paragraphs", "numbers, one on each line", "rows about {word}", "the results of last week",
]
DETAILS = [
    "Write only the [result|number|answer|value], nothing else.", "The [output |]file must [contain|hold] [just|only] that.", "[Put one|One] entry per line.",
    "Do not [change|modify|touch] [any other file|the original file|other files].", "Leave the [original|input] [file |]unchanged.", "Keep the names exactly as given.",
    "The [new |]file [belongs|goes] in the current directory.", "Use [the shell|any tool|whatever tool fits].", "Nothing else should be in [it|the file].",
    "Do not add quotes[| or spaces].", "The [content|text] must match exactly.", "Spelling and case matter.", "[There must be no|Without] empty lines[| in the result].",
    "Overwrite the file if it exists.", "[Only|Just] the [plain |]result [please|matters].", "Each [item|value|name] goes on its own line.",
    "No [header|title|extra text].", "The [first|top] line [is|counts as] a header.", "Check that it worked.", "Then stop.",
]
JOINTS = [", then {b}", " and then {b}", ". Then {b}", ". After that, {b}", " and {b}", "; {b}", ". Next, {b}", ". Afterwards {b}", ". Also {b}", ". Finally, {b}"]


def split_of(templates, split):
    """The templates of a split: every fifth is held out; a list of fewer than three serves both."""
    if len(templates) < 3:
        return templates
    step = 5 if len(templates) >= 5 else len(templates)
    chosen = [t for i, t in enumerate(templates) if (i % step == step - 1) == (split == "heldout")]
    return chosen


def expand(rng, template):
    """Replaces each `[a|b]` by one of its alternatives, innermost first."""
    while True:
        match = INNERMOST.search(template)
        if not match:
            return template
        template = template[: match.start()] + rng.choice(match.group(1).split("|")) + template[match.end() :]


def say(rng, split, templates, slots):
    """One instruction clause; slots are filled after expansion, so values may contain brackets."""
    return expand(rng, rng.choice(split_of(templates, split))).format_map(slots)


def capital(text):
    """The text with a capital first letter, unless it begins with a file name or an expression."""
    first = text.split(" ", 1)[0]
    return text if re.search(r"[._/=\d]", first[:-1]) else text[:1].upper() + text[1:]


def join(rng, split, clauses):
    """Several clauses as one instruction: a numbered list or sentences with connectives."""
    if len(clauses) == 1:
        return clauses[0]
    if len(clauses) > 1 and rng.random() < 0.25:
        mark = rng.choice(["{}. ", "{}) ", "- ", "Step {}: "])
        head = expand(rng, rng.choice(["Do the following:", "Please do [these|the following] steps:", "Steps:", "[Three|Several|A few] things to do:", "Do this in order:"]))
        sep = rng.choice(["\n", "\n", " "])
        return head + sep + sep.join(mark.format(i) + capital(c) + rng.choice(["", "."]) for i, c in enumerate(clauses, 1))
    text = clauses[0]
    for clause in clauses[1:]:
        joint = rng.choice(split_of(JOINTS, split))
        text += joint.format(b=clause)
    return text


def surround(rng, values, text, sources):
    """The instruction with a sentence on its input before it, or on its result after it."""
    split = values.split
    if sources and rng.random() < 0.3:
        described = expand(rng, rng.choice(split_of(DESCRIPTIONS, split))).format(word=values.word())
        intro = expand(rng, rng.choice(split_of(INTROS, split))).format(a=sources[0], d=described, name=values.name())
        text = f"{intro} {text}"
    if rng.random() < 0.3:
        for _ in range(rng.choice([1, 1, 2, 3])):
            text += ("" if text[-1] in ".!?" else ".") + " " + expand(rng, rng.choice(split_of(DETAILS, split)))
    return text


def instruction(rng, values, clauses, sources=()):
    """The whole user message; `sources` are files that it says exist."""
    split = values.split
    text = join(rng, split, clauses)
    if "\n" in text:
        return text
    opening = rng.choice(OPENINGS)
    text = opening + text
    if rng.random() > 0.06:
        text = capital(text)
    if opening.startswith(("could", "can", "would")) and rng.random() < 0.7:
        text += "?"
    elif text[-1] not in ".!?":
        text += rng.choice(split_of(CLOSINGS, split))
    if rng.random() < 0.07:
        context = rng.choice(split_of(CONTEXTS, split)).format(word=values.word(), name=values.name())
        text = f"{context} {text}" if rng.random() < 0.7 else f"{text} {context}"
    return surround(rng, values, text, sources)
