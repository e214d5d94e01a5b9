use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Checks that the run is the same at every number of threads, to the byte.
fn same(jinxes: &[&str], arguments: &Value) -> Played {
    let one = play(team(jinxes), arguments, &Echo, 1);
    for threads in [2, 8] {
        let many = play(team(jinxes), arguments, &Echo, threads);
        assert_eq!(one.trace, many.trace);
        assert_eq!(one.result, many.result);
        assert_eq!(one.emitted, many.emitted);
    }
    one
}

#[test]
fn the_course_does_not_depend_on_threads() {
    let look = "jinx_name: look\ninputs: [q]\neffect: read\nsteps: [{emit: {type: seen, content: '{{ q }}'}}, {engine: llm, prompt: 'look {{ q }}'}]";
    let text = r#"
jinx_name: tried
effect: read
steps:
  - set: {count: 12}
  - name: all
    for: i
    in: range(count)
    parallel: true
    do:
      - {name: slept, engine: bash, code: "sleep 0.0$(( (i * 7) % 5 )); echo $i"}
      - {name: seen, engine: look, cache: 60s, with: {q: "{{ (i % 3) | string }}"}}
      - {for: j, in: "range(2)", parallel: true, do: [{name: deep, engine: llm, prompt: "{{ i }}.{{ j }}"}]}
      - {engine: text, text: "{{ slept }} {{ seen }} {{ output }}"}
  - return: "{{ all }}"
"#;
    let played = same(&[look, text], &json!({}));
    assert_eq!(played.result.output[4], json!("4 LOOK 1 ['4.0', '4.1']"));
    assert_eq!(played.emitted.len(), 12);
    assert!(played.trace.iter().any(|line| line.contains(r#""in":"deep[12][2]""#)), "{:#?}", played.trace);
}

#[test]
fn the_first_in_the_file_ends_the_series() {
    let each = |steps: &str| {
        format!(
            "jinx_name: tried\neffect: read\nsteps: [{{name: all, for: i, in: 'range(9)', parallel: true, {steps}}}, {{return: '{{{{ all }}}}'}}]"
        )
    };
    let late = "{engine: bash, code: 'sleep 0.$(( i == 3 ? 2 : 0 )); [ $i -lt 3 ] || exit $i'}";
    let played =
        same(&[&each(&format!("do: [{{emit: {{type: n, content: '{{{{ i }}}}'}}}}, {late}]"))], &json!({}));
    assert_eq!((played.result.exit, played.emitted.len()), (Some(3), 4));
    let returned = "do: [{when: 'i in [4, 6]', then: [{return: 'left at {{ i }}'}]}]";
    assert_eq!(same(&[&each(returned)], &json!({})).result.output, json!("left at 4"));
    let until = "until: x == '5', do: [{name: x, engine: bash, code: 'sleep 0.0$(( 9 - i )); echo $i'}]";
    assert_eq!(same(&[&each(until)], &json!({})).result.output, json!(["0", "1", "2", "3", "4", "5"]));
}

#[test]
fn iterations_really_run_side_by_side() {
    let text = "jinx_name: tried\neffect: read\nsteps: [{for: i, in: 'range(8)', parallel: true, do: [{engine: bash, code: 'sleep 1'}]}]";
    let begun = std::time::Instant::now();
    assert!(play(team(&[text]), &json!({}), &Scripted::default(), 8).result.ok);
    assert!(begun.elapsed().as_secs_f64() < 6.0, "{:?}", begun.elapsed());
}

#[test]
fn what_is_set_side_by_side_stays_there() {
    let text = "jinx_name: tried\neffect: read\nsteps: [{set: {n: 0}}, {for: i, in: 'range(4)', parallel: true, do: [{set: {n: '{{ n + 1 }}'}}, {engine: text, text: '{{ n }}'}]}, {return: '{{ output }} {{ n }}'}]";
    assert_eq!(same(&[text], &json!({})).result.output, json!("[1, 1, 1, 1] 0"));
}

/// A model that counts its requests, and is slow.
struct Counting(AtomicUsize);

impl ChatModel for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn chat(&self, request: Request) -> Result<Events<'_>, ModelError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(20));
        Echo.chat(request).map(|events| Box::new(events.collect::<Vec<_>>().into_iter()) as Events)
    }
}

#[test]
fn no_model_is_asked_for_what_comes_after_the_end() {
    let ask = "jinx_name: ask\neffect: read\nsteps: [{engine: llm, prompt: x}]";
    for body in ["{engine: llm, prompt: x}", "{engine: ask}"] {
        let text = format!(
            "jinx_name: tried\neffect: read\nsteps: [{{for: i, in: 'range(8)', parallel: true, until: loop.index == 2, do: [{body}]}}]"
        );
        let model = Counting(AtomicUsize::new(0));
        let played = play(team(&[ask, &text]), &json!({}), &model, 8);
        assert_eq!((played.result.output, model.0.into_inner()), (json!(["X", "X"]), 2), "{body}");
    }
}
