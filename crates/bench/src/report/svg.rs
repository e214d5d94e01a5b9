//! Draws figures as inline SVG.
//! Uses the colours of the page's style, so that they suit light and dark mode.

use super::html::{escape, query};
use super::{Axis, Bar, Figure, Point, Selection, Series};

/// Width of all figures; the page scales them.
const WIDTH: f64 = 760.0;
/// Width of a number next to a bar, with its margin.
const VALUE: f64 = 46.0;
/// Number of colours in the style.
const COLOURS: usize = 8;

/// Draws a figure, with a legend if needed.
/// `title` is the accessible name.
pub fn figure(figure: &Figure, title: &str) -> String {
    match figure {
        Figure::Bars { axis, bars } => barred(axis, bars, title),
        Figure::Points { x, y, joined, series } => pointed(x, y, *joined, series, title),
    }
}

fn open(height: f64, title: &str) -> String {
    format!(
        "<div class=\"figure\" tabindex=\"0\" role=\"region\" aria-label=\"Figure: {0}\"><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"group\" \
         aria-label=\"{0}\">",
        escape(title)
    )
}

/// Wraps `inside` in a link to the attempts behind it, with the tooltip `words`.
fn link(behind: Option<&Selection>, words: &str, inside: &str) -> String {
    let inside = format!("<title>{}</title>{inside}", escape(words));
    match behind {
        Some(behind) => {
            format!("<a href=\"#list?{}\" aria-label=\"{}\">{inside}</a>", query(behind), escape(words))
        }
        None => format!("<g>{inside}</g>"),
    }
}

fn barred(axis: &str, bars: &[Bar], title: &str) -> String {
    let (left, row, top) = (220.0, 26.0, 8.0);
    let scale = |value: f64| left + value.clamp(0.0, 100.0) / 100.0 * (WIDTH - left - 60.0);
    let bottom = top + row * bars.len() as f64;
    let mut text = open(bottom + 40.0, title);
    for tick in (0..=100).step_by(20) {
        let x = scale(f64::from(tick));
        text += &format!(
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{tick}</text>",
            bottom + 16.0
        );
    }
    text += &format!(
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        scale(50.0),
        bottom + 33.0,
        escape(axis)
    );
    let names = labels(&bars.iter().map(|bar| bar.name.as_str()).collect::<Vec<_>>(), 32);
    for (at, (bar, name)) in bars.iter().zip(names).enumerate() {
        let y = top + row * at as f64;
        let middle = y + row / 2.0;
        let mut inside = format!(
            "<rect class=\"hit\" x=\"0\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{row}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text><rect class=\"bar\" x=\"{left}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/>",
            left - 8.0,
            middle + 4.5,
            escape(&name),
            y + 5.0,
            scale(bar.value) - left,
            row - 10.0,
        );
        let mut words = format!("{}: {:.1} %", bar.name, bar.value);
        let mut end = scale(bar.value);
        if let Some((low, high)) = bar.interval {
            end = scale(high);
            let (low_x, high_x) = (scale(low), scale(high));
            words += &format!(" ({low:.1} – {high:.1})");
            inside += &format!(
                "<path class=\"whisker\" d=\"M{low_x:.1} {middle:.1}H{high_x:.1}M{low_x:.1} {0:.1}v8M{high_x:.1} {0:.1}v8\"/>",
                middle - 4.0
            );
        }
        if let Some(published) = bar.published {
            let x = scale(published);
            words += &format!(", published {published:.1} %");
            inside +=
                &format!("<path class=\"published\" d=\"M{x:.1} {:.1}l6 6l-6 6l-6 -6z\"/>", middle - 6.0);
            // Our number stays at our bar, unless the mark is in its place.
            if x + 6.0 > end && x - 6.0 < end + VALUE {
                end = x + 6.0;
            }
        }
        inside += &format!(
            "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{:.1}</text>",
            end + 6.0,
            middle + 4.5,
            bar.value
        );
        text += &link(Some(&bar.behind), &words, &inside);
    }
    text += "</svg></div>";
    if bars.iter().any(|bar| bar.published.is_some()) {
        text += "<ul class=\"legend\"><li><svg viewBox=\"0 0 14 14\"><rect class=\"bar\" x=\"1\" y=\"3\" width=\"12\" height=\"8\"/></svg>ours, with \
                 95 % interval</li><li><svg viewBox=\"0 0 14 14\"><path class=\"published\" d=\"M7 1l6 6l-6 6l-6 -6z\"/></svg>published</li></ul>";
    }
    text
}

/// Returns the ends of an axis and its ticks.
fn ticks(axis: &Axis, values: impl Iterator<Item = f64> + Clone) -> (f64, f64, Vec<f64>) {
    if axis.percent {
        return (0.0, 100.0, (0..=5).map(|n| f64::from(n) * 20.0).collect());
    }
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if !low.is_finite() || !high.is_finite() {
        return (0.0, 1.0, vec![0.0, 1.0]);
    }
    if axis.logarithmic {
        let (low, high) = (low.max(1e-9) / 1.3, high.max(1e-9) * 1.3);
        let all = || (-9..13).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
        let within: Vec<f64> = all().filter(|tick| (low..=high).contains(tick)).collect();
        if !within.is_empty() {
            return (low, high, within);
        }
        // All values may be between two ticks, like a single point: then use both ticks.
        let low = all().rfind(|tick| *tick < low).unwrap_or(low);
        let high = all().find(|tick| *tick > high).unwrap_or(high);
        return (low, high, vec![low, high]);
    }
    let span = (high - low).max(1e-9);
    let rough = span / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= rough);
    // Numbers of attempts and trials are integers.
    let step = step.unwrap_or(rough).max(if low.fract() == 0.0 && high.fract() == 0.0 { 1.0 } else { 0.0 });
    let (low, high) = (low - span * 0.05, high + span * 0.05);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (low, high, (first..=last.min(first + 20)).map(|n| n as f64 * step).collect())
}

fn pointed(x: &Axis, y: &Axis, joined: bool, series: &[Series], title: &str) -> String {
    let (left, right, top, bottom, height) = (52.0, WIDTH - 16.0, 10.0, 330.0, 372.0);
    let points = || series.iter().flat_map(|one| &one.points);
    let (low_x, high_x, ticks_x) = ticks(x, points().map(|point| point.x));
    let (low_y, high_y, ticks_y) = ticks(y, points().map(|point| point.y));
    let log = |axis: &Axis, value: f64| if axis.logarithmic { value.max(1e-9).ln() } else { value };
    let across = |value: f64| {
        let (low, high) = (log(x, low_x), log(x, high_x));
        left + (log(x, value) - low) / (high - low) * (right - left)
    };
    let up = |value: f64| bottom - (value - low_y) / (high_y - low_y) * (bottom - top);
    let mut text = open(height, title);
    for tick in ticks_x {
        let at = across(tick);
        text += &format!(
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\"/><text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            bottom + 17.0,
            short(tick)
        );
    }
    for tick in ticks_y {
        let at = up(tick);
        text += &format!(
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            left - 7.0,
            at + 4.0,
            short(tick)
        );
    }
    text += &format!(
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text><text class=\"tick\" text-anchor=\"middle\" \
         transform=\"translate(13 {:.1}) rotate(-90)\">{}</text>",
        f64::midpoint(left, right),
        height - 6.0,
        escape(&x.name),
        f64::midpoint(top, bottom),
        escape(&y.name)
    );
    let mut legend = String::new();
    let mut names: Vec<&str> = Vec::new();
    for one in series {
        let number = names.iter().position(|name| *name == one.name).unwrap_or_else(|| {
            names.push(&one.name);
            names.len() - 1
        });
        // When the colours repeat, the markers change.
        let (colour, shape) = (number % COLOURS, number + number / COLOURS);
        let class = format!("s{colour}{}", if one.published { " theirs" } else { "" });
        let place = |point: &Point| (across(point.x), up(point.y));
        if joined && one.points.len() > 1 {
            let path: Vec<String> =
                one.points.iter().map(place).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            text += &format!("<path class=\"line {class}\" d=\"M{}\"/>", path.join("L"));
        }
        for point in &one.points {
            let (at, high) = place(point);
            let whose = if one.published { "published, " } else { "" };
            let (right, height) = (short(point.x), format!("{:.1}", point.y));
            let words =
                format!("{whose}{}: {} {right}, {} {height}", point.name, plain(&x.name), plain(&y.name));
            let mark = marker(shape, at, high);
            text +=
                &link(point.behind.as_ref(), &words, &format!("<path class=\"mark {class}\" d=\"{mark}\"/>"));
        }
        let what = if one.published { ", published" } else { "" };
        legend += &format!(
            "<li><svg viewBox=\"0 0 14 14\"><path class=\"mark {class}\" d=\"{}\"/></svg>{}{what}</li>",
            marker(shape, 7.0, 7.0),
            escape(&one.name)
        );
    }
    text += "</svg></div>";
    if series.len() > 1 {
        text += &format!("<ul class=\"legend\">{legend}</ul>");
    }
    text
}

/// Draws a marker in one of four shapes around a point.
fn marker(shape: usize, x: f64, y: f64) -> String {
    match shape % 4 {
        0 => format!("M{:.1} {y:.1}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z", x - 5.0),
        1 => format!("M{:.1} {:.1}h9v9h-9z", x - 4.5, y - 4.5),
        2 => format!("M{x:.1} {:.1}l5.5 10h-11z", y - 6.0),
        _ => format!("M{x:.1} {:.1}l6 6l-6 6l-6 -6z", y - 6.0),
    }
}

/// Returns the label of an axis without its unit.
fn plain(name: &str) -> &str {
    name.split(',').next().unwrap_or(name)
}

/// Formats a number for an axis.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Shortens names to a maximum length and keeps them unique: uses the last part of a path or URL,
/// then cuts the middle.
/// So the condition, which comes last, remains.
fn labels(names: &[&str], most: usize) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for name in names {
        let (model, condition) =
            name.split_once(", ").map_or((*name, ""), |(model, condition)| (model, condition));
        let last = model.rsplit(['/', '\\']).next().filter(|last| !last.is_empty()).unwrap_or(model);
        let last = last.rsplit_once('#').map_or(last, |(_, name)| name);
        let short = if condition.is_empty() { last.to_owned() } else { format!("{last}, {condition}") };
        let mut label = shortened(&short, most);
        let mut number = 2;
        while labels.contains(&label) {
            let end = format!(" ({number})");
            label = shortened(&short, most - end.len()) + &end;
            number += 1;
        }
        labels.push(label);
    }
    labels
}

/// Cuts the middle of a text that is too long.
fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let begin = (most - 1) / 2;
    let end = text.chars().skip(count - (most - 1 - begin));
    text.chars().take(begin).chain(['…']).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_ticks_around_a_single_value() {
        let axis = Axis { name: "size".into(), logarithmic: true, percent: false };
        let ticks = |value: f64| ticks(&axis, [value].into_iter());
        assert_eq!(ticks(3.0), (2.0, 5.0, vec![2.0, 5.0]));
        let (low, high, within) = ticks(2.0);
        assert!(low < 2.0 && high > 2.0);
        assert_eq!(within, [2.0]);
    }

    #[test]
    fn names_are_cut_where_they_tell_least() {
        let names = [
            "/home/somebody/.cache/models/with/a/long/path/Qwen3-4B-Q4_K_M.gguf, forced",
            "/home/somebody/.cache/models/with/a/long/path/Qwen3-4B-Q4_K_M.gguf, free",
            "/another/path/Qwen3-4B-Q4_K_M.gguf, free",
            "http://127.0.0.1:8080/v1#some-model",
            "A model whose title is a long one, and a condition with a long name",
            "short",
        ];
        let found = labels(&names, 32);
        assert_eq!(
            found,
            [
                "Qwen3-4B-Q4_K_M.gguf, forced",
                "Qwen3-4B-Q4_K_M.gguf, free",
                "Qwen3-4B-Q4_K_M.gguf, free (2)",
                "some-model",
                "A model whose t…with a long name",
                "short",
            ]
        );
    }

    /// Returns the position of the number next to a bar of 20 % whose interval ends at 50 %.
    fn place(published: Option<f64>) -> f64 {
        let bar = Bar {
            name: "a".into(),
            value: 20.0,
            interval: Some((5.0, 50.0)),
            published,
            behind: Selection::default(),
        };
        let text = barred("score, %", &[bar], "Scores");
        let (_, rest) = text.split_once("class=\"value\" x=\"").expect("a number");
        let (x, _) = rest.split_once('"').expect("a place");
        x.parse().expect("it is one")
    }

    #[test]
    fn a_number_stays_at_its_bar_unless_a_mark_is_in_its_place() {
        let free = place(None);
        assert_eq!([Some(10.0), Some(20.0), Some(90.0)].map(place), [free; 3]);
        for published in [50.0, 52.0, 58.0] {
            assert!(place(Some(published)) > free, "{published}");
        }
    }
}
