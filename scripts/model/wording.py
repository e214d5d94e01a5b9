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


# Words that may stand for each other; training instructions have a part of their words exchanged, so that the model doesn't rely
# on the very wording of a template. Held-out instructions stay as they are.
ALIKE = [
    "create make produce set_up", "write save store put record", "delete remove erase", "delete remove get_rid_of drop", "folder directory", "contains holds has includes", "containing holding with",
    "find determine get look_for", "number count", "called named", "each every", "all every_one_of", "largest biggest highest greatest", "smallest lowest least",
    "prints outputs shows displays", "print output show", "returns gives gives_back", "lines rows", "change turn", "copy duplicate", "result outcome output", "sorted ordered", "sort order arrange",
    "occurs appears", "numbers values", "first top initial", "last final", "script program", "run execute start", "fix correct repair mend", "should must shall has_to", "file document",
    "convert turn change", "whole entire", "current present", "show display give", "compute calculate work_out", "extract take pull pick", "append add", "wrong incorrect", "empty blank", "computes calculates", "takes gets reads", "then afterwards", "word term", "in inside within", "new fresh", "put place", "give provide", "needs requires", "instead_of in_place_of rather_than", "only just", "list enumerate", "begin start",
]
EXCHANGE = {}
for line in ALIKE:
    for word in line.split():
        EXCHANGE.setdefault(word, []).extend(other.replace("_", " ") for other in line.split() if other != word)
LITTLE = {"the", "a", "an", "all", "please"}


def vary(rng, text):
    """The clause with a part of its words exchanged and some little ones left out; slots stay."""
    share = rng.choice([0, 0, 0.1, 0.25, 0.4])
    if not share:
        return text

    def other(match):
        word = match[0]
        if word[0] == "{":
            return word
        same = EXCHANGE.get(word.lower())
        if same and rng.random() < share:
            new = rng.choice(same)
            return new[0].upper() + new[1:] if word[0].isupper() else new
        return "" if word in LITTLE and rng.random() < share / 4 else word

    return re.sub(r"  +", " ", re.sub(r"\{\w*\}|\w+", other, text)).strip() if text == text.strip() else re.sub(r"\{\w*\}|\w+", other, text)


def say(rng, split, templates, slots):
    """One instruction clause; slots are filled after expansion, so values may contain brackets."""
    text = expand(rng, rng.choice(split_of(templates, split)))
    return (vary(rng, text) if split == "train" else text).format_map(slots)


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


NO_ORDER = set("the a an in at there we you someone which how what who is are was does has have inside for of it that this line everything wherever everywhere among each every all one".split())


def instruction(rng, values, clauses, sources=()):
    """The whole user message; `sources` are files that it says exist."""
    split = values.split
    text = join(rng, split, clauses)
    if "\n" in text:
        return text
    # Before a statement or a question, "please" and the like are out of place.
    first = text.split(" ", 1)[0]
    opening = rng.choice(OPENINGS) if first.isalpha() and first.islower() and first not in NO_ORDER else ""
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
