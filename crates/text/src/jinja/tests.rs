use std::time::{Duration, Instant};

use minijinja::UndefinedBehavior;

use super::*;

/// Fuel of the tests, enough for about 6 MB.
const FUEL: u64 = 100_000;

fn rendered(source: &str) -> Result<String, String> {
    let mut environment = environment();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(FUEL));
    let source = bounded(source, &MARKS).map_err(|refused| refused.to_string())?;
    environment.render_str(&source, ()).map_err(|error| error.to_string())
}

/// The peak memory of this process, in bytes; 0 if the system doesn't report it.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or(0) << 10
}

/// Templates that would abort the process or exhaust memory fail quickly and with little memory.
#[test]
fn hostile_templates_end_with_an_error() {
    let check = |source: &str, expected: &str| {
        let (begun, before) = (Instant::now(), peak());
        let error = rendered(source).unwrap_err();
        assert!(error.contains(expected), "{source:.80}: {error:.200}");
        assert!(begun.elapsed() < Duration::from_secs(15), "{source:.80}: {:?}", begun.elapsed());
        assert!(peak() < before + (256 << 20), "{source:.80}: {} MiB", peak() >> 20);
    };
    let (large, deep) = ("larger values", "nested too deep");
    // Values that contain themselves.
    check("{% set n = namespace() %}{% set n.a = n %}{{ n }}", "a namespace can't be kept");
    check("{% set n = namespace() %}{% set n.a = [{'b': n}] %}{{ n }}", "a namespace can't be kept");
    check(
        "{% set n = namespace() %}{% set l = [n] %}{% set n.a = l %}{{ l == l }}",
        "a namespace can't be kept",
    );
    // Deep values.
    check(&format!("{}{{{{ x }}}}", "{% set x = [x] %}".repeat(3000)), deep);
    check(&format!("{}{{{{ x|tojson }}}}", "{% set x = {'a': x} %}".repeat(3000)), deep);
    check(
        "{% set n = namespace(x=[]) %}{% for a in range(9999) %}{% set n.x = [[[n.x]]] %}{% endfor %}{{ n.x == n.x }}",
        deep,
    );
    check(
        &format!("{}{{{{ x }}}}{}", "{% with x = [[[[x]]]] %}".repeat(60), "{% endwith %}".repeat(60)),
        deep,
    );
    check("{{ [1]|tojson(indent=1000000000) }}", "the indent is a number");
    check("{{ [1]|tojson(1000000000) }}", "the indent is a number");
    // Values with shared contents are large when printed.
    let shared =
        "{% set n = namespace(x=['x']) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}";
    for printed in [
        "{{ n.x }}",
        "{{ n.x ~ '' }}",
        "{{ n.x|string }}",
        "{{ n.x|tojson }}",
        "{{ n.x|join }}",
        "{{ '%s' % (n.x,) }}",
        "{{ '{}'.format(n.x) }}",
        "{{ n.x|pprint }}",
        "{{ n.x|upper }}",
        "{{ n.x|urlencode }}",
        "{{ [n.x]|map('string')|list }}",
    ] {
        check(&format!("{shared}{printed}"), "");
    }
    // Widths and counts.
    for wide in [
        "'{:>99999999999}'.format(1)",
        "'{:>{}}'.format(1, 99999999)",
        "'%1000000000d'|format(1)",
        "'%1000000000d' % 1",
        "'%*d' % (99999999, 1)",
        "'%.99999999f' % 1.0",
        "('%9999d' * 99999) % (1,)",
        "'a'|center(99999999)",
        "'a'.center(99999999)",
        "'a'.zfill(99999999)",
        "'a'.ljust(99999999)",
        "'a'.rjust(99999999)",
        "'\\t'.expandtabs(99999999)",
        "('\\t' * 99999).expandtabs(256)",
        "'a'|indent(999999999999)",
        "'a'.replace('', 'x' * 700000).replace('', 'x' * 700000)",
        "'aaaa'|replace('a', 'x' * 700000)",
        "range(90000)|join('x' * 700)",
        "('x' * 700).join(range(90000))",
        "[1]|batch(99999999999, 'x')",
        "[1]|slice(99999999999, 'x')",
        "'a' * 99999999999",
        "99999999999 * 'a'",
        "[1] * 99999999999",
        "(1,) * 99999999999",
        "[[1]] * 999999|list",
        "range(99999999999)",
        "['x' * 700000] * 9|join|upper",
        "2 ** 99999",
        "('<' * 700000)|e|e|e|e|e",
        "'x' * 700000 ~ 'x' * 700000",
    ] {
        check(&format!("{{{{ {wide} }}}}"), "");
    }
    // Values that grow gradually.
    let n = "{% set n = namespace(x='x', l=[1], a=[]) %}";
    let again = |statement: &str| format!("{n}{{% for i in range(9999) %}}{statement}{{% endfor %}}");
    check(&again("{% set n.x = n.x ~ n.x %}"), large);
    check(&again("{% set n.x = n.x + n.x %}"), large);
    check(&again("{% set n.x = n.x * 2 %}"), large);
    check(&again("{% set n.l = n.l + n.l %}"), large);
    check(&again("{% set n.l = n.l * 2 %}"), large);
    check(&again("{% set n.x = n.x|replace('x', 'xx') %}"), large);
    check(&again("{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}"), large);
    check(&again("{% set n.x = [n.x, n.x]|join %}"), large);
    check(&again("{% set n.x = '%s%s' % (n.x, n.x) %}"), "");
    check(
        &format!("{n}{{% set n.x = 'x' * 700000 %}}{}", again("{% set n.a = n.a + [n.x[:], n.x[1:]] %}")),
        "",
    );
    check(&format!("{}{{{{ x }}}}", "{% set x = 'x' ~ x ~ x %}".repeat(99)), large);
    // Lazy lists.
    check(&(again("{% set n.l = n.l|zip(n.l) %}") + "{{ n.l|list }}"), "");
    check(&(again("{% set n.l = n.l|chain(n.l) %}") + "{{ n.l|list }}"), large);
    check(&again("{% set n.l = n.l[:]|list + n.l[:]|list %}"), large);
    check(&"{% raw %}".repeat(30_000), "has no end");
    check("{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m('x') }}", "");
    check(
        "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{{ m(m(m(m(m(m(m(m(m(m(m(m('x' * 9999)))))))))))) }}",
        large,
    );
    check("{% for x in ['x'] recursive %}{{ loop([x ~ x]) }}{% endfor %}", "");
    // Plain text.
    let text = "text ".repeat(9999);
    check(&format!("{{% for a in range(9999) %}}{text}{{% endfor %}}"), large);
    check(
        &format!(
            "{{% macro m() %}}{{% for a in range(9999) %}}{text}{{% endfor %}}{{% endmacro %}}{{{{ m() }}}}"
        ),
        large,
    );
    // Expressions that would overflow any parser's stack.
    for sign in ["not ", "-", "(", "[", "a + ", "a ** ", "a if b else "] {
        check(&format!("{{{{ {}a }}}}", sign.repeat(40_000)), "nests too deep");
    }
}

/// The deepest permitted nesting needs no more than a thread's default stack.
#[test]
fn what_is_permitted_fits_the_stack_of_a_thread() {
    for source in [
        format!("{{{{ {}true }}}}", "not ".repeat(490)),
        format!("{{{{ 1{} }}}}", " + 1".repeat(490)),
        format!("{{{{ a{} }}}}", ".a".repeat(490)),
        format!("{{{{ a{} }}}}", "|e".repeat(490)),
        format!("{{{{ {}1 }}}}", "1 if a else ".repeat(240)),
        format!("{{{{ {}1{} }}}}", "(".repeat(70), ")".repeat(70)),
        format!("{{{{ {}1{} }}}}", "[".repeat(70), "]".repeat(70)),
        format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(490)),
    ] {
        rendered(&source).unwrap();
    }
}

/// Temporary values nest only as deep as the parser permits.
#[test]
fn values_in_nested_blocks_fit_the_stack_of_a_thread() {
    let mut source = String::from("{% set x = 1 %}");
    for block in 0..120 {
        let depth = (140 - block) / 2;
        source += &format!("{{% with x = {}x{} %}}", "[".repeat(depth), "]".repeat(depth));
    }
    let ends = "{% endwith %}".repeat(120);
    assert_eq!(
        rendered(&format!("{source}{{{{ x == x }}}}{{{{ [x, x]|unique|length }}}}{ends}")).unwrap(),
        "True1"
    );
    assert!(rendered(&format!("{source}{{{{ x }}}}{ends}")).unwrap_err().contains("too deep"));
}

/// A slice of a slice is as close as its list.
#[test]
fn slices_of_slices_take_no_work_of_their_own() {
    let begun = Instant::now();
    let source =
        "{% set n = namespace(l=[1]) %}{% for i in range(2000) %}{% set n.l = n.l[:] %}{% endfor %}{{ n.l }}";
    assert_eq!(rendered(source).unwrap(), "[1]");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn honest_templates_are_far_from_the_bounds() {
    let list = "{% set n = namespace(l=[]) %}{% for i in range(500) %}{% set n.l = n.l + [{'i': i}] %}{% endfor %}{{ n.l|length }}";
    assert_eq!(rendered(list).unwrap(), "500");
    let text = "{% for i in range(1000) %}{{ 'some words ' * 20 }}{{ {'a': [1, 'b']}|tojson }}\n{% endfor %}";
    assert!(rendered(text).unwrap().len() > 200_000);
}

#[test]
fn prints_floats_as_python_does() {
    let check = |value: f64, expected: &str| assert_eq!(float(value), expected);
    check(1.0, "1.0");
    check(-0.0, "-0.0");
    check(0.1, "0.1");
    check(1e-4, "0.0001");
    check(1.5e-7, "1.5e-07");
    check(1e15, "1000000000000000.0");
    check(1e16, "1e+16");
    check(1.25e300, "1.25e+300");
}
