use super::*;

#[test]
fn operators_become_filters() {
    let check = |source: &str, expected: &str| {
        assert_eq!(bounded_expression(source).unwrap(), expected, "{source}");
    };
    check("a + b", "a |_add( b)");
    check("a+b*c-d", "a|_add(b|_mul(c))|_sub(d)");
    check("a * b + c ~ d", "a |_mul( b) |_add( c |_cat( d))");
    check("-a ** 2 // b", "-a |_pow( 2) |_floordiv( b)");
    check("a - -b", "a |_sub( -b)");
    check("a.b[c + 1].d(e, f=g ~ h)|i + j", "a.b[c |_add( 1)].d(e, f=g |_cat( h))|i |_add( j)");
    check("x % 2 == 0 and not y in z", "x |_mod( 2) == 0 and not y in z");
    check("a ~ b if c + d else e", "a |_cat( b) if c |_add( d) else e");
    check("'a' 'b' ~ x is divisibleby 3", "'a' 'b' |_cat( x is divisibleby 3)");
    check("x is not none ~ 'y'", "x is not none |_cat( 'y')");
    check("f(*a, **b)", "f(*a, **b)");
    check("[-1, 2 - 1, {'a': -b}]", "[-1, 2 |_sub( 1), {'a': -b}]");
    check("1.5e-3 + 2", "1.5e-3 |_add( 2)");
    check("'it\\'s' + \"-\"", "'it\\'s' |_add( \"-\")");
    check("a[1:][::-1].b + c", "((a[1:]|_made)[::-1]|_made).b |_add( c)");
    check("a +", "a |_add(");
    check("[a + ]", "[a |_add( ]");
    check("a[b[1:] + c:]", "(a[(b[1:]|_made) |_add( c):]|_made)");
    check("-a[1:]", "-(a[1:]|_made)");
}

#[test]
fn tags_keep_their_form() {
    let check = |source: &str, expected: &str| assert_eq!(bounded(source, &MARKS).unwrap(), expected);
    let same = |source: &str| check(source, source);
    same("a + b {# a + b #} {% raw %}{{ a + b }}{% endraw %} {{- a -}} {{+ b +}}");
    same("{% for a, b in c recursive %}{% endfor %}{% set x %}y{% endset %}{% set y|upper %}{% endset %}");
    check("{%- set x.y = a + 1 -%}", "{%- set x.y = ( a |_add( 1))|_store -%}");
    check("{% set a, b = b, a %}", "{% set a, b = ( b, a)|_keep %}");
    check("{% for x in a[1:] if x > 1 - 2 %}", "{% for x in (a[1:]|_made) if x > 1 |_sub( 2) %}");
    check("{% macro m(a, b='x' ~ 'y') %}", "{% macro m(a, b='x' |_cat( 'y')) %}");
    check(
        "{{ {'a': {'b': 1 % 2}} }}\n{{ a\n +\n b }}",
        "{{ {'a': {'b': 1 |_mod( 2)}} }}\n{{ a\n |_add(\n b) }}",
    );
    let long = "x".repeat(100);
    check(
        &format!("{{{{ a }}}}\n  {long}"),
        &format!("{{{{ a }}}}\n  {{%+ if ''|_text(103) %}}{{% endif %}}{long}"),
    );
    let marks = Marks { variable: ("<<", ">>"), block: ("<%", "%>"), comment: ("<#", "#>") };
    assert_eq!(bounded("{{ a + b }} << a + b >>", &marks).unwrap(), "{{ a + b }} << a |_add( b) >>");
}

#[test]
fn what_no_stack_holds_is_refused() {
    let check = |source: &str, expected: Option<(usize, &str)>| {
        let refused = bounded(source, &MARKS).err();
        assert_eq!(refused.map(|refused| (refused.line, refused.what)), expected, "{source:.60}");
    };
    let deep = Some((1, "the expression nests too deep"));
    for sign in ["not ", "-", "a.", "a + ", "a or ", "(", "[", "a(", "a if b else ", "a == ", "a is b is "] {
        check(&format!("{{{{ {}a }}}}", sign.repeat(50_000)), deep);
    }
    check(&format!("{{{{ a{} }}}}", "|e".repeat(20_000)), deep);
    check(&format!("{{{{ [{}] }}}}", "-a, ".repeat(2000)), None);
    check(
        &format!("{{% if a %}}{}", "{% elif b %}".repeat(2000)),
        Some((1, "too many conditions depend on each other")),
    );
    check(&"{% if a %}{% elif b %}{% endif %}\n".repeat(2000), None);
    check(&format!("\n\n{}", "{% if a %}\n".repeat(40_000)), Some((25_003, "the template is too long")));
    check(
        &format!("a{}b{{{{ a }}}}{}{{{{ a }}}}", " ".repeat(9999), " ".repeat(9999)),
        Some((1, "the white space is too long")),
    );
    check(&"a - b ".repeat(50_000), None);
    check(&format!("{{{{ '{}' }}}}", "- ".repeat(50_000)), None);
    check("{{ 'open", None);
}
