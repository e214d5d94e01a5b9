# Tells what Python programs need and is not here: {"programs", "modules", "npc"} as JSON on stdin,
# on stdout for each program a list of [kind, name, line].
# The programs are parsed and never run.
# Only what is certainly missing counts: where a program may get by without, nothing is said.
import ast, builtins, functools, importlib.util, json, sys

# Which exceptions tell that something of a kind is missing.
ANY = {"Exception", "BaseException"}
CAUGHT = {
    "module": {"ImportError", "ModuleNotFoundError"} | ANY,
    "name": {"NameError"} | ANY,
    "attribute": {"AttributeError"} | ANY,
}
# What programs look at before they import what only some systems have.
SYSTEMS = {"TYPE_CHECKING", "sys.platform", "sys.version_info", "os.name", "platform.system"}
# With these a program may make names that can't be seen in it.
MAKERS = {"exec", "eval", "globals", "locals", "vars", "setattr", "builtins", "__builtins__"}
# What every program has beside the built-in functions.
BESIDE = {"context", "npc", "output", "__v", "__class__", "__annotations__"}


def spoken(value):
    """Whether a value is a text that somebody wrote, perhaps with something filled in."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str) and value.value.strip() != ""
    if isinstance(value, ast.BinOp):
        return spoken(value.left) or spoken(value.right)
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Attribute) and spoken(value.func.value)
    return isinstance(value, ast.JoinedStr)


def called(node):
    """The last name of what is called."""
    function = getattr(node, "func", None)
    return getattr(function, "id", None) or getattr(function, "attr", None)


def dotted(node):
    """`a` or `a.b`, as it is written."""
    of = getattr(getattr(node, "value", None), "id", None)
    return f"{of}.{node.attr}" if of and isinstance(node, ast.Attribute) else getattr(node, "id", None)


def constant(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def is_result(target):
    of = getattr(target, "value", None)
    inside = isinstance(target, ast.Subscript) and getattr(of, "id", None) == "context"
    return constant(target.slice) == "output" if inside else getattr(target, "id", None) == "output"


def gives_up(statement):
    """Whether a statement of a handler ends the program, or tells what went wrong as its result."""
    if isinstance(statement, ast.Expr):
        return called(statement.value) in ("exit", "quit", "_exit", "abort")
    if isinstance(statement, ast.Assign):
        return any(map(is_result, statement.targets)) and spoken(statement.value)
    return isinstance(statement, ast.Raise)


def part_of_context(value):
    """The key, if a value is `context[key]` or `context.get(key, …)`."""
    if isinstance(value, ast.Subscript) and getattr(value.value, "id", None) == "context":
        return constant(value.slice)
    of = getattr(getattr(value, "func", None), "value", None)
    if isinstance(value, ast.Call) and called(value) == "get" and getattr(of, "id", None) == "context":
        return constant(value.args[0]) if value.args else None
    return None


class Look(ast.NodeVisitor):
    """One program: first all that it has, then what it needs."""

    def __init__(self, tree, step):
        self.found = []
        self.guards = []
        self.elsewhere = 0
        self.sought = set()
        names = set(step["modules"]) | BESIDE | set(dir(builtins))
        taken = {}
        self.any_module = self.any_name = False
        for node in ast.walk(tree):
            new = []
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                new = [node.id]
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                new = [alias.asname or alias.name.split(".")[0] for alias in node.names]
                self.any_name |= "*" in new
            elif isinstance(node, ast.arg):
                new = [node.arg]
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                new = node.names
            elif isinstance(node, ast.Attribute):
                self.any_module |= dotted(node) == "sys.path"
                if not isinstance(node.ctx, ast.Load):
                    self.sought.add(node.attr)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)):
                new = [node.name]
            elif hasattr(ast, "MatchAs") and isinstance(node, (ast.MatchAs, ast.MatchStar)):
                new = [node.name]
            elif hasattr(ast, "MatchMapping") and isinstance(node, ast.MatchMapping):
                new = [node.rest]
            elif hasattr(ast, "TypeVar") and isinstance(node, (ast.TypeVar, ast.ParamSpec, ast.TypeVarTuple)):
                new = [node.name]
            elif isinstance(node, ast.Call):
                # What a program asks for is not certain.
                if called(node) in ("hasattr", "getattr", "find_spec"):
                    self.sought |= {constant(argument) for argument in node.args}
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                if called(node.comparators[0]) == "dir":
                    self.sought.add(constant(node.left))
            if isinstance(node, ast.Name):
                self.any_name |= node.id in MAKERS
            for name in new:
                taken[name] = taken.get(name, 0) + 1
        self.names = names | set(taken)
        # Which names mean something of the context, and what that has.
        mapping = set(dir(dict))
        has = {"npc": mapping | set(step["npc"]), "team": mapping}
        self.has = {"npc": has["npc"], "context": mapping | {"set"}}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and part_of_context(node.value) in has:
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        taken[target.id] -= 1
                        self.has[target.id] = has[part_of_context(node.value)]
        self.has = {name: known for name, known in self.has.items() if not taken.get(name)}

    def caught(self, kind):
        for handlers in reversed(self.guards):
            for types, body in handlers:
                if types is None or CAUGHT[kind] & types:
                    return not any(map(gives_up, body))
        return False

    def need(self, kind, name, node):
        known = any(other[:2] == [kind, name] for other in self.found)
        if not known and not self.elsewhere and not self.caught(kind):
            self.found.append([kind, name, node.lineno])

    def need_module(self, name, node):
        name = name.split(".")[0]
        if not self.any_module and name not in self.sought and not is_there(name):
            self.need("module", name, node)

    def visit_Import(self, node):
        for alias in node.names:
            self.need_module(alias.name, node)

    def visit_ImportFrom(self, node):
        if not node.level:
            self.need_module(node.module, node)

    def visit_Name(self, node):
        if not self.any_name and node.id not in self.names and node.id not in self.sought:
            self.need("name", node.id, node)

    def visit_Attribute(self, node):
        of = getattr(node.value, "id", None)
        if node.attr not in self.has.get(of, {node.attr}) and node.attr not in self.sought:
            self.need("attribute", dotted(node), node)
        self.generic_visit(node)

    def visit_Call(self, node):
        if called(node) in ("__import__", "import_module") and node.args and constant(node.args[0]):
            self.need_module(constant(node.args[0]), node)
        self.generic_visit(node)

    def visit_Try(self, node):
        handlers = [(types(handler.type), handler.body) for handler in node.handlers]
        self.within(self.guards + [handlers], node.body)
        self.within(self.guards, node.handlers + node.orelse + node.finalbody)

    visit_TryStar = visit_Try

    def visit_With(self, node):
        calls = [item.context_expr for item in node.items]
        handlers = [(set().union(*map(types, call.args)), []) for call in calls if called(call) == "suppress"]
        self.within(self.guards, node.items)
        self.within(self.guards + [handlers], node.body)

    visit_AsyncWith = visit_With

    def visit_If(self, node):
        only_somewhere = any(dotted(part) in SYSTEMS for part in ast.walk(node.test))
        self.visit(node.test)
        self.elsewhere += only_somewhere
        self.within(self.guards, node.body + node.orelse)
        self.elsewhere -= only_somewhere

    def visit_FunctionDef(self, node):
        self.within(self.guards, node.decorator_list + node.args.defaults)
        self.within(self.guards, [default for default in node.args.kw_defaults if default])
        # It runs when it is called: what is around it then is another matter.
        self.within([], node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node):
        # Whether annotations are looked at depends on Python's version.
        self.within(self.guards, [part for part in (node.target, node.value) if part])

    def within(self, guards, nodes):
        before, self.guards = self.guards, guards
        for node in nodes:
            self.visit(node)
        self.guards = before


def types(expression):
    """The names of the exceptions that are caught; None = all."""
    if expression is None:
        return None
    return {getattr(part, "id", None) or getattr(part, "attr", None) for part in ast.walk(expression)}


@functools.lru_cache(None)
def is_there(module):
    try:
        return module == "alara" or importlib.util.find_spec(module) is not None
    except Exception:
        # It can't be told.
        return True


def look(program, step):
    try:
        tree = ast.parse(program)
        seen = Look(tree, step)
        seen.visit(tree)
        return seen.found
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


step = json.load(sys.stdin)
json.dump([look(program, step) for program in step["programs"]], sys.stdout)
