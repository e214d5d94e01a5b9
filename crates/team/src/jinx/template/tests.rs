use serde_json::json;

use super::*;

fn scope() -> Scope {
    let names = json!({
        "q": "it's \"$(id)\" `id` {{ 7*7 }}\n",
        "n": 3,
        "items": [{"id": 1, "price": 2.5}, {"id": 2, "price": 4.0}],
        "order": {"status": "open", "note": null},
        "text": "  Found 0 errors ",
    });
    Scope::new(names.as_object().unwrap())
}

#[test]
fn expressions() {
    let check = |expression: &str, expected: Result<Value, &str>| {
        assert_eq!(evaluate(expression, &scope()), expected.map_err(str::to_owned), "{expression}");
    };
    check("n + 1", Ok(json!(4)));
    check("order.status == 'open' and n in [1, 3]", Ok(json!(true)));
    check("text.strip().lower()", Ok(json!("found 0 errors")));
    check("items | map(attribute='id')", Ok(json!([1, 2])));
    check("items | selectattr('price', 'gt', 3) | first", Ok(json!({"id": 2, "price": 4.0})));
    check("[1] + [{'a': n}]", Ok(json!([1, {"a": 3}])));
    check("range(n)", Ok(json!([0, 1, 2])));
    check("order.note", Ok(json!(null)));
    check("order.nope | default('-')", Ok(json!("-")));
    check("nope is defined", Ok(json!(false)));
    check("order | tojson", Ok(json!(r#"{"status":"open","note":null}"#)));
    check("'<é>' | tojson", Ok(json!("\"<é>\"")));
    check("[1] | tojson(indent=2)", Ok(json!("[\n  1\n]")));
    check("('[1, {\"a\": null}]' | fromjson)[1]", Ok(json!({"a": null})));
    check("text is match('^ *Found [0-9]+')", Ok(json!(true)));
    check("order is match('closed')", Ok(json!(false)));
    check("nope", Err("`nope` is not defined"));
    check("order.nope", Err("`order.nope` is not defined"));
    check("'a' ~ nope", Err("`nope` is not defined"));
    check("n +", Err("unexpected end of input, expected expression in `n +`"));
    check("'x' is match('(')", Err("`(` is no regular expression in `'x' is match('(')`"));
    check(
        "'x' | fromjson",
        Err("the text is no JSON: expected value at line 1 column 1 in `'x' | fromjson`"),
    );
}

#[test]
fn hostile_expressions_end_with_an_error() {
    for expression in [
        "'{:>99999999999}'.format(1)",
        "'%1000000000d' | format(1)",
        "'a' * 99999999999",
        "[1] * 99999999999",
        "[1] | batch(99999999999, 'x')",
        "[1] | slice(99999999999)",
        "range(90000) | join('x' * 90000)",
        "('x' * 9000000).replace('x', 'y' * 9000000)",
    ] {
        evaluate(expression, &scope()).unwrap_err();
        fill(&json!(format!("a {{{{ {expression} }}}}")), &scope()).unwrap_err();
        code(Language::Bash, &format!("echo {{{{ {expression} }}}}"), &scope()).unwrap_err();
    }
    let deep = format!("{}n", "not ".repeat(50_000));
    assert!(evaluate(&deep, &scope()).unwrap_err().starts_with("the expression nests too deep"));
    fill(&json!(format!("a {{{{ {deep} }}}}")), &scope()).unwrap_err();
    let n = "{% set n = namespace(x='x') %}";
    for statements in [
        "{% set n.a = n %}{{ n }}",
        "{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    ] {
        fill(&json!(format!("{n}{statements}")), &scope()).unwrap_err();
        code(Language::Python, &format!("{n}{statements}"), &scope()).unwrap_err();
    }
}

#[test]
fn fuel_ends() {
    let text = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    let error = fill(&json!(text), &scope()).unwrap_err();
    assert!(error.starts_with("engine ran out of fuel in `{% for a"), "{error}");
}

#[test]
fn templates() {
    let check = |template: Value, expected: Result<Value, &str>| {
        assert_eq!(fill(&template, &scope()), expected.map_err(str::to_owned), "{template}");
    };
    check(json!("{{ n }}"), Ok(json!(3)));
    check(json!(" {{- items[0] -}}\n"), Ok(json!({"id": 1, "price": 2.5})));
    check(json!("{{ n }}{{ n }}"), Ok(json!("33")));
    check(json!("{{ {'a': {'b': n}} }}"), Ok(json!({"a": {"b": 3}})));
    check(json!("{{ '}}' }}"), Ok(json!("}}")));
    check(json!("n: {{ n }}\n"), Ok(json!("n: 3\n")));
    check(json!("{% if n > 2 %}many{% endif %}"), Ok(json!("many")));
    check(
        json!({"a": ["{{ n }}", "x", null, 1.5], "b": "{{ order }}"}),
        Ok(json!({"a": [3, "x", null, 1.5], "b": {"status": "open", "note": null}})),
    );
    // The contents of a value are never rendered.
    check(json!("{{ q }}"), Ok(json!("it's \"$(id)\" `id` {{ 7*7 }}\n")));
    check(json!("<{{ q }}>"), Ok(json!("<it's \"$(id)\" `id` {{ 7*7 }}\n>")));
    check(json!("{# no #}{{ n }}"), Ok(json!("3")));
    check(json!("a {{ nope }}"), Err("`nope` is not defined"));
    check(json!("a {{ n"), Err("unexpected end of input, expected end of variable block in `a {{ n`"));
}

#[test]
fn programs() {
    use Language::{Bash, Python};
    let check = |language, text: &str, expected: Result<(&str, Value), &str>| {
        let found = code(language, text, &scope()).map(|code| (code.text, Value::from(code.values)));
        assert_eq!(
            found,
            expected.map(|(text, values)| (text.to_owned(), values)).map_err(str::to_owned),
            "{text}"
        );
    };
    let q = "it's \"$(id)\" `id` {{ 7*7 }}\n";
    check(Bash, "echo {{ q }}", Ok(("echo \"$__v1\"", json!([q]))));
    check(Python, "x = {{ q }}\n", Ok(("x = __v[1]\n", json!([q]))));
    check(Python, "x = {{ order | tojson }}", Ok(("x = __v[1]", json!([{"status": "open", "note": null}]))));
    check(
        Bash,
        "{% for item in items %}echo {{ item.id }} {{- n }};{% endfor %}",
        Ok(("echo \"$__v1\"\"$__v2\";echo \"$__v3\"\"$__v4\";", json!([1, 3, 2, 3]))),
    );
    // The whole program.
    check(Bash, " {{ q }}\n", Ok((q, json!([]))));
    check(Python, "{{ text | tojson }}", Ok(("  Found 0 errors ", json!([]))));
    check(Python, "{{ n }}", Err("`n` is no text, so it is no program"));
    check(Bash, "{{ q ~ q }}", Ok(("\"$__v1\"", json!([format!("{q}{q}")]))));
    // Texts that only look like placeholders.
    for text in [
        "echo ${#q} {# x #}",
        "awk '{{print $1}}'",
        "x = '{%s}' % {'a': {'b': 1}}",
        "f\"{{'a': 1}}\" {{ not closed",
        "{{ n",
        "{%",
    ] {
        check(Python, text, Ok((text, json!([]))));
        check(Bash, &format!("{text} # {{{{ n }}}}"), Ok((&format!("{text} # \"$__v1\""), json!([3]))));
    }
    check(
        Python,
        "{% raw %}{{ n }}{% if %}{% endraw %} + {{ n }}",
        Ok(("{{ n }}{% if %} + __v[1]", json!([3]))),
    );
    check(Bash, "echo '{{ q }}'", Err("`'{{ q }}'` in line 1 of the code stands in quotes: write `{{ q }}`"));
    check(Bash, "echo {{ nope }}", Err("`nope` is not defined"));
    check(
        Bash,
        "{% if n %}echo {{ n }}",
        Err("unexpected end of input, expected end of block in `{% if n %}echo {{ n }}`"),
    );
}

#[test]
fn sections_of_a_skill() {
    let skill = json!({
        "name": "git", "description": "How to", "introduction": "Hello.\n",
        "sections": {"Commits": "Small.\n", "Merging branches": "Often.", "all together": "x"},
        "files": ["run.sh"],
    });
    let scope = Scope::new(json!({"skill": skill}).as_object().unwrap());
    let check = |name: &str, expected: Result<&str, &str>| {
        let found = evaluate(&format!("skill | section({})", json!(name)), &scope);
        assert_eq!(found, expected.map(Value::from).map_err(str::to_owned), "{name}");
    };
    check("Commits", Ok("Small."));
    check("## commits", Ok("Small."));
    check("mer", Ok("Often."));
    check("Comits", Ok("Small."));
    check("list", Ok("- Commits\n- Merging branches\n- all together"));
    check(
        "meta",
        Ok(
            "name: git\ndescription: How to\nsections: Commits, Merging branches, all together\nfiles: run.sh",
        ),
    );
    let all = "Hello.\n\n## Commits\n\nSmall.\n\n## Merging branches\n\nOften.\n\n## all together\n\nx";
    check("all", Ok(all));
    check("", Ok(all));
    check("rebase", Err("there is no section `rebase`; sections: Commits, Merging branches, all together"));
    assert_eq!(evaluate("skill | section", &scope), Ok(Value::from(all)));
}

/// Signs without ends are searched for once each.
#[test]
fn many_signs_without_ends_take_no_time() {
    let begun = std::time::Instant::now();
    for sign in ["{{", "{%", "{% raw %}", "{{ '", "{{ x }", "{% raw %}{{", "{% x %", "{{ [ "] {
        let text = format!("{}endraw", sign.repeat(30_000));
        let whole: usize = super::code::pieces(&text).iter().map(|piece| piece.range().len()).sum();
        assert_eq!(whole, text.len(), "{sign}");
    }
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
}
