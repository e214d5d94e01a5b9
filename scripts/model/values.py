"""Random names, words, numbers and sentences.

Owns the pools that instructions copy values from, split so that a held-out conversation draws words, and most made-up
names, that no training conversation contains. Knows nothing of tasks or tools. Standard library only.
"""

import builtins
import keyword
import pathlib
import random
import zlib

WORDS = """
acorn alpha amber anchor apple april arrow atlas autumn badge bagel bakery ball bamboo banana basket beacon bear beige
berry bike birch bird blanket blossom blue boat bottle boulder branch bread breeze brick bridge bronze brook broom brown
bubble bucket budget butter button cabin cable cactus camera camp canal candle canvas canyon cargo carpet castle cedar
cello chair chalk cherry chess circle city clay cliff clock cloud clover coast cobalt coffee comet compass copper coral
corner cotton cousin crane crater cream creek cricket crimson crown crystal curtain daisy dawn deer delta desert diamond
dolphin dragon drum dune eagle earth echo elm ember emerald engine falcon farm feather fern ferry field finch fire flame
flint flower flute fog forest fossil fountain fox frost fruit galaxy garden garlic gate ginger glacier glass globe gold
goose grain granite grape gravel green grove guitar hammer harbor harvest hazel heron hill honey horizon horse house ice
indigo iris iron island ivory ivy jacket jade jasmine jewel jungle juniper kayak kettle kitchen kite koala ladder lagoon
lake lamp lantern lark lava lavender leaf lemon lentil letter lilac lily lime linen lion lizard lobster lotus lunar
magnet maple marble market marsh meadow melon mercury metal meteor mill mint mirror mist monkey moon moss moth mountain
music mustard nectar needle nest nickel night north novel nutmeg oak oasis oat ocean olive onion opal orange orbit
orchid otter owl oxygen paddle palm panda paper parrot path peach pearl pebble pencil penguin pepper piano pigeon pilot
pine planet plum pocket pond poppy potato prairie prism pumpkin purple quail quartz quilt rabbit radio rain raven red
reef ribbon rice ridge river robin rocket rope rose ruby sage sail salmon salt sand sapphire scarf school sea seed
shadow shell shore silk silver sky slate snow solar song spark sparrow spice spider spring spruce squid star steam stone
storm stream sugar summer sun swallow swan table tango tea temple thistle thunder tiger timber topaz torch tower trail
train tulip tundra turtle umbrella valley vanilla velvet violet violin voice walnut water wave west whale wheat willow
wind window winter wolf wood yarn yellow zebra zinc
account agenda archive audit backup batch bench bill bonus book bug build cache calendar card cart catalog chapter chart
check class client code comment common config contact cost count course customer daily data deploy design detail device
diary draft email entry error event export feature file final flag folder form game goal grade graph group guest guide
header health history home hour idea image index info input invoice item job journal json key label lab ledger level
library license line link list log login mail main manual map master meeting member memo menu message meta metric minutes
model monitor month name news note number offer office order output owner page parcel part party patch payment people
phone photo place plan plot point pool port post price print product profile project prompt queue quiz quote rate read
recipe record region release report request result review role room route rule sale sample scan scene schedule score
script search season section secret sensor server service session setting shift shop sign site size slot source staff
stage state stats status step stock store story study style summary survey system tag target task team temp term test
text ticket time title todo token tool topic total track trade trip unit update upload usage user value vendor version
video view visit vote week weight word work zone
""".split()
COMMON = """
hello world hi greeting greetings goodbye welcome bye test result results output input data numbers number names words text
lines list notes note report summary log logs config settings info main app script run helper util math calc counter
fruits fruit colors color animals animal cities city countries country students student employees people users user sales
products product orders order items values scores prices total sum average max min count size file files temp sample example
demo hash version status done ready ok yes no apple banana cherry red green blue cat dog one two three four five first second
last readme license todo shopping tasks events server system hostname today start end message poem story letter quote page
""".split()
NAMES = """
Ada Alan Alice Amir Ana Anna Bella Ben Bob Carla Carol Chen Clara Dan Dave Diana Elena Emil Emma Eva Felix Finn Frank
Grace Hana Hugo Ida Ines Ivan Jack Jane Jonas Julia Kai Karl Kim Laura Lena Leo Lisa Lucas Maja Marco Maria Mark Max Mia
Mila Mona Nadia Nina Noah Nora Olga Oscar Otto Paul Pia Priya Rosa Ruth Sam Sara Simon Sofia Theo Tim Tina Tom Uma Vera
Viktor Walter Yara Yuki Zoe
""".split()
FILLERS = """
is was the and a in of to has for with on not very still almost never always again here now ready open closed good fine
new old small large quick quiet bright under over near from we you they it will can should must
""".split()
SYLLABLES = """
ba be bi bo bu ca ce co cu da de di do du fa fe fi fo fu ga ge go gu ha he hi ho ja jo ju ka ke ki ko ku la le li lo lu
ma me mi mo mu na ne ni no nu pa pe pi po pu qua ra re ri ro ru sa se si so su ta te ti to tu va ve vi vo wa we wi xa xe
ya yo za ze zi zo bra cle dri fla gri kri plo pra sha sti tra tri vor wex zan nel mar ton ler dix von bek rim quo lyn
""".split()
DIRS = """
src docs data lib bin test tests config assets images logs tmp build dist notes reports backup archive output input
scripts public private shared models users old new work project app web api core utils static media files
""".split()
MORE = pathlib.Path(__file__).with_name("words.txt").read_text().split()  # words that documentation often uses
RESERVED = {*keyword.kwlist, *dir(builtins)}
TEXT_EXT = ["txt"] * 8 + ["log", "md", "text", "dat", "list", "out"]


def held(word):
    """Whether a word belongs to the held-out pool (one in eight, by checksum)."""
    return zlib.crc32(word.lower().encode()) % 8 == 0


class Values:
    """Draws values for one conversation; `split` is "train" or "heldout"."""

    def __init__(self, rng, split):
        self.rng, self.split = rng, split

    def _ok(self, word):
        return held(word) == (self.split == "heldout")

    def pick(self, pool):
        while True:
            word = self.rng.choice(pool)
            if self._ok(word):
                return word

    def made_up(self):
        """A pronounceable word of two to four syllables."""
        while True:
            word = "".join(self.rng.choice(SYLLABLES) for _ in range(self.rng.choice([2, 2, 3, 3, 4])))
            if self._ok(word):
                return word

    def word(self):
        kind = self.rng.random()
        if kind < 0.03:
            return self.code()
        return self.pick(WORDS) if kind < 0.25 else self.pick(COMMON) if kind < 0.35 else self.pick(MORE) if kind < 0.65 else self.made_up()

    def code(self):
        """Letters and digits without a sense, a letter first."""
        while True:
            text = self.rng.choice("abcdefghijklmnopqrstuvwxyz") + "".join(self.rng.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(self.rng.randint(2, 5)))
            if self._ok(text) and text not in RESERVED:
                return text

    def name(self):
        kind = self.rng.random()
        return self.pick(NAMES) if kind < 0.5 else self.pick(MORE).capitalize() if kind < 0.6 else self.made_up().capitalize()

    def number(self, low=0, high=None):
        rng = self.rng
        if high is None:
            high = low + rng.choice([9, 20, 99, 99, 999, 9999])
        return rng.randint(low, high)

    def identifier(self):
        """A lower-case name for a key, variable, column or environment variable."""
        rng = self.rng
        first = self.word()
        kind = rng.random()
        if kind < 0.7 and first not in RESERVED:
            return first
        if kind < 0.95 or first in RESERVED:
            return f"{first}_{self.word()}"
        return f"{first}{rng.randint(1, 99)}"

    def stem(self):
        """The part of a file name before its extension."""
        rng, word = self.rng, self.word()
        kind = rng.random()
        if kind < 0.55:
            return word
        if kind < 0.70:
            return f"{word}_{self.word()}"
        if kind < 0.80:
            return f"{word}-{self.word()}"
        if kind < 0.88:
            return f"{word}{rng.randint(1, 99)}"
        if kind < 0.92:
            return f"{word}_{rng.randint(1, 2030)}"
        if kind < 0.95:
            return word.upper()
        if kind < 0.98:
            return word.capitalize()
        return f"{word}.{self.word()}"

    def folder(self, depth=None):
        rng = self.rng
        depth = depth or rng.choice([1, 1, 1, 1, 1, 2, 2, 3])
        return "/".join(self.rng.choice(DIRS) if rng.random() < 0.3 else self.stem().replace(".", "_") for _ in range(depth))

    def path(self, ext=None, nested=0.2):
        ext = ext or self.rng.choice(TEXT_EXT)
        path = f"{self.stem()}.{ext}"
        if self.rng.random() < nested:
            path = f"{self.folder()}/{path}"
        return path

    def phrase(self, low=1, high=6):
        """Words without quotes or final punctuation."""
        rng, out = self.rng, []
        for _ in range(rng.randint(low, high)):
            kind = rng.random()
            out.append(
                rng.choice(FILLERS) if kind < 0.35 and high > 1
                else str(self.number()) if kind < 0.43
                else self.name() if kind < 0.55
                else self.word()
            )
        text = " ".join(out)
        kind = rng.random()
        if kind < 0.3:
            return text[0].upper() + text[1:]
        if kind < 0.36:
            return text.title()
        if kind < 0.41:
            return text.upper()
        return text

    def sentence(self, low=1, high=7):
        """A phrase that may carry punctuation, an inner comma, a mail address or `key=value`."""
        rng, text = self.rng, self.phrase(low, high)
        kind = rng.random()
        if kind < 0.12:
            text += rng.choice("!!?.")
        elif kind < 0.20:
            text = f"{self.word().capitalize()}, {text}{rng.choice(['', '!', '.'])}"
        elif kind < 0.24:
            text = f"{self.identifier()}={rng.choice([self.word(), str(self.number())])}"
        elif kind < 0.28:
            text = f"{self.word()}: {text}"
        elif kind < 0.30:
            text = f"{self.name().lower()}@{self.word()}.com"
        elif kind < 0.32:
            text = f"{text} - {self.word()}"
        return text

    def lines(self, low=2, high=5):
        """Distinct lines of one kind: words, names, numbers or sentences."""
        rng = self.rng
        count, kind, out = rng.randint(low, high), rng.random(), []
        while len(out) < count:
            line = (
                self.word() if kind < 0.45
                else self.name() if kind < 0.6
                else str(self.number()) if kind < 0.75
                else self.sentence(1, 4)
            )
            if line not in out:
                out.append(line)
        return out


def make_rng(*key):
    """A generator that depends on the key alone, on every Python version."""
    return random.Random(zlib.crc32(repr(key).encode()))
