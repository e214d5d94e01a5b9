//! Finds modules, names and attributes that the Python steps of jinxes need and that are missing
//! here.
//!
//! alara asks Python itself, in a sandbox: it knows its grammar and its modules best.
//! Python parses the programs and runs none of them.
//! Without an answer nothing counts as missing; without Python, every Python step lacks it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;

use crate::jinx::check::of_piece;
use crate::jinx::python::{MODULES, NPC, Need};
use crate::jinx::template::{Piece, pieces};
use crate::jinx::{Action, Jinx, Missing, Step};
use crate::types::Location;
use alara_sandbox::{self, Isolation, Policy, Sandbox, Script, launcher};

const LOOK: &str = include_str!("needs.py");
const PYTHON: &str = "python3";
/// How long Python may take to read all programs of a team.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Most bytes of the answer.
const ANSWER_BYTES: usize = 4 << 20;
/// The exit status of the launcher for a program that doesn't exist.
const NO_PROGRAM: i32 = 127;
/// Most programs whose needs are cached.
const REMEMBERED: usize = 4096;

/// The missing needs of a program, each with its line from 1.
type Needs = Vec<(Need, String, usize)>;

/// Finds what these jinxes need and lack.
/// Modules in the folders `beside` count as present; the first is the work directory, in which
/// steps run.
/// `text_of` returns the text of a file, to determine locations.
pub fn look<'a>(
    jinxes: impl Iterator<Item = &'a mut Jinx>,
    beside: &[PathBuf],
    text_of: &dyn Fn(&Path) -> Option<String>,
) {
    let jinxes: Vec<(&mut Jinx, Vec<(Location, String)>)> = jinxes
        .map(|jinx| {
            let programs = programs(&jinx.steps);
            (jinx, programs)
        })
        .collect();
    let programs = jinxes.iter().flat_map(|(_, programs)| programs);
    let programs: Vec<String> = programs.map(|(_, code)| plain(code)).collect();
    let Some(needs) = needs(&programs, beside) else { return };
    let mut needs = needs.into_iter();
    let is_beside = |name: &str| {
        beside.iter().any(|folder| folder.join(format!("{name}.py")).is_file() || folder.join(name).is_dir())
    };
    for (jinx, programs) in jinxes {
        let mut missing: Vec<Missing> = Vec::new();
        let mut file = None;
        for ((step, code), needs) in programs.iter().zip(needs.by_ref()) {
            for (kind, name, line) in needs {
                let known = missing.iter().any(|other| other.kind == kind && other.name == name);
                if known || (kind == Need::Module && is_beside(&name)) {
                    continue;
                }
                let file = file.get_or_insert_with(|| text_of(&jinx.path).unwrap_or_default());
                let line = code.lines().nth(line.saturating_sub(1)).unwrap_or_default();
                missing.push(Missing { kind, name, location: of_piece(file, *step, line) });
            }
        }
        jinx.missing = missing;
    }
}

/// The Python programs among steps, except for those whose failure is caught, each with the
/// location of its step.
fn programs(steps: &[Step]) -> Vec<(Location, String)> {
    let found = steps.iter().flat_map(|step| match &step.action {
        Action::Python { code } => vec![(step.location, code.clone())],
        Action::When { then, otherwise, .. } => [programs(then), programs(otherwise)].concat(),
        Action::For { steps, .. } | Action::Try { finally: steps, .. } => programs(steps),
        _ => Vec::new(),
    });
    found.collect()
}

/// A program with a value in place of each placeholder, on unchanged lines.
/// Empty if it has tags: its text is unknown before it is rendered.
fn plain(code: &str) -> String {
    let mut program = String::new();
    for piece in pieces(code) {
        let text = &code[piece.range()];
        match piece {
            Piece::Text(_) => program += text,
            Piece::Expression(..) => {
                program += &format!("(__v[0]{})", "\n".repeat(text.matches('\n').count()));
            }
            Piece::Tag(..) => return String::new(),
        }
    }
    program
}

/// The missing needs of each of these programs.
/// Answers are cached: a process may read a team several times.
fn needs(programs: &[String], beside: &[PathBuf]) -> Option<Vec<Needs>> {
    static KNOWN: Mutex<BTreeMap<(PathBuf, String), Needs>> = Mutex::new(BTreeMap::new());
    let work = beside.first().filter(|path| !path.as_os_str().is_empty());
    let work = work.map_or(Path::new("."), PathBuf::as_path).canonicalize().ok()?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = |program: &String| (work.clone(), program.clone());
    let new: Vec<&String> = programs.iter().filter(|program| !known.contains_key(&key(program))).collect();
    if !new.is_empty() {
        let answers = ask(&new, &work, beside)?;
        if known.len() > REMEMBERED {
            known.clear();
        }
        known.extend(new.into_iter().map(key).zip(answers));
    }
    Some(programs.iter().map(|program| known.get(&key(program)).cloned().unwrap_or_default()).collect())
}

/// Asks the Python that steps would use in `work`; `None` if there is no answer.
fn ask(programs: &[&String], work: &Path, beside: &[PathBuf]) -> Option<Vec<Needs>> {
    // These folders may contain a Python environment.
    let sandbox = sandbox(work, beside.to_vec())?;
    let question = json!({"programs": programs, "modules": MODULES, "npc": NPC}).to_string();
    let output = sandbox.run(&Script {
        stdin: Some(question.as_bytes()),
        output_limit: ANSWER_BYTES,
        ..Script::new(&[PYTHON, "-I", "-c", LOOK], TIMEOUT)
    });
    match output {
        Ok(output) if output.exit == Some(NO_PROGRAM) => Some(without_python(programs)),
        Ok(output) => {
            let answer: Vec<Needs> = serde_json::from_slice(&output.stdout).ok()?;
            (answer.len() == programs.len()).then_some(answer)
        }
        Err(alara_sandbox::Error::Spawn { .. }) => Some(without_python(programs)),
        Err(_) => None,
    }
}

/// The sandbox that checks programs, in the folder in which steps run.
pub(super) fn sandbox(work: &Path, readable: Vec<PathBuf>) -> Option<Sandbox> {
    // A program that embeds this crate may lack a launcher.
    let isolation = if launcher().is_some() { Isolation::Auto } else { Isolation::Off };
    Sandbox::new(work, Policy { isolation, readable, ..Policy::default() }).ok()
}

fn without_python(programs: &[&String]) -> Vec<Needs> {
    programs.iter().map(|_| vec![(Need::Program, PYTHON.to_owned(), 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The missing needs of a program, as `kind name line`.
    fn needed(program: &str) -> Vec<String> {
        let needs = needs(&[plain(program)], &[]).unwrap().remove(0);
        needs.iter().map(|(kind, name, line)| format!("{kind:?} {name} {line}")).collect()
    }

    #[test]
    fn what_is_certainly_missing() {
        let check = |program: &str, expected: &[&str]| assert_eq!(needed(program), expected, "{program}");
        // Imports.
        check("import os, nowhere_a.b\nfrom json import dumps", &["Module nowhere_a 1"]);
        check("def f():\n    from nowhere_a import x\nf()", &["Module nowhere_a 2"]);
        check("if context:\n    import nowhere_a\nelse:\n    import nowhere_a", &["Module nowhere_a 2"]);
        check("__import__('nowhere_a')", &["Module nowhere_a 1"]);
        check("import alara, yaml_of_nowhere as y", &["Module yaml_of_nowhere 1"]);
        // Names, including those that another runtime defines.
        check("x = 1\noutput = x + nowhere", &["Name nowhere 2"]);
        check("output = [y for y in [1]]\nprint(state.path)", &["Name state 2"]);
        check("print(os.sep, json.dumps(1), __v[1], npc.name, output, exit, __name__)", &[]);
        check("match 1:\n    case [a, *b]: print(a, b)\n    case {'k': v, **r}: print(v, r)", &[]);
        check(
            "def f(a, *b, c=1, **d):\n    global e\n    e = a\n    return b, c, d\nclass G: h = 1\nG, e",
            &[],
        );
        check("with open('x') as f, open('y') as (g, h): print(f, g, h)\nif (n := 1): print(n)", &[]);
        check("def f(x: Nowhere) -> Nowhere: ...\ny: Nowhere = 1", &[]);
        // Attributes of the objects that a step gets.
        check("print(npc.model)", &["Attribute npc.model 1"]);
        check("me = context['npc']\nprint(me.name, me.get('x'), me.model)", &["Attribute me.model 2"]);
        check("team = context.get('team')\nteam.npcs", &["Attribute team.npcs 2"]);
        check("print(context.items(), context.npc)", &["Attribute context.npc 1"]);
        check("npc = make() if 0 else None\nprint(npc.model)", &["Name make 1"]);
        check("npc.mood = 1\nprint(npc.mood)", &[]);
        // Placeholders keep the lines.
        check("x = {{ {'a':\n 1} }}\nimport nowhere_a", &["Module nowhere_a 3"]);
        check("{{ code }}", &[]);
        check("{% if x %}\nimport nowhere_a\n{% endif %}", &[]);
        // A program with a syntax error reports nothing.
        check("import nowhere_a\n)", &[]);
    }

    #[test]
    fn what_a_program_gets_by_without() {
        let check = |program: &str| assert_eq!(needed(program), Vec::<String>::new(), "{program}");
        check("try:\n    import nowhere_a\nexcept ImportError:\n    nowhere_a = None");
        check(
            "try:\n    from nowhere_a import b\n    ok = True\nexcept (OSError, ModuleNotFoundError):\n    ok = False",
        );
        check("try:\n    import nowhere_a\nexcept:\n    pass");
        check(
            "try:\n    import nowhere_a\n    output = nowhere_a.mean([1])\nexcept ImportError:\n    output = 1 / 1",
        );
        check("import contextlib\nwith contextlib.suppress(ImportError):\n    import nowhere_a");
        check("import importlib.util\nif importlib.util.find_spec('nowhere_a'):\n    import nowhere_a");
        check("if sys.platform == 'win32':\n    import nowhere_a");
        check("import sys\nsys.path.insert(0, 'lib')\nimport nowhere_a");
        check("try:\n    cwd = state.path\nexcept (NameError, AttributeError):\n    cwd = '.'");
        check("if 'state' in dir() and state: print(state)");
        check("exec('x = 1')\nprint(x)");
        check("from os import *\nprint(getcwd())");
        check("if hasattr(npc, 'model') and npc.model: print(npc.model)");
        // A handler that only reports the error is no fallback.
        for handler in [
            "raise",
            "exit(1)",
            "sys.exit('no')",
            "output = 'not available'",
            "context['output'] = f'{1}'",
            "output = 'failed: ' + str(1)",
        ] {
            let program = format!("try:\n    import nowhere_a\nexcept Exception:\n    {handler}");
            assert_eq!(needed(&program), ["Module nowhere_a 2"], "{program}");
        }
        // Nor is a handler for another error.
        let program = "try:\n    import nowhere_a\nexcept OSError:\n    pass\nelse:\n    import nowhere_b";
        assert_eq!(needed(program), ["Module nowhere_a 2", "Module nowhere_b 6"]);
    }

    #[test]
    fn python_is_told_what_it_is_given() {
        // The names that the check expects are those that a step gets.
        for module in MODULES {
            assert_eq!(needed(&format!("print({module}.__name__)")), Vec::<String>::new());
        }
        for key in NPC {
            assert_eq!(needed(&format!("print(npc.{key})")), Vec::<String>::new());
        }
    }
}
