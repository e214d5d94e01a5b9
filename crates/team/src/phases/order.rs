//! Orders tasks by rules of precedence.

/// Tasks in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The tasks, each once.
    pub tasks: Vec<String>,
    /// Tasks that the rules put before each other; then all tasks keep their given order.
    pub cycle: Vec<String>,
}

/// Orders tasks: for each pair of `before`, tasks with the words of the first come before those
/// with the words of the second.
///
/// Words are compared as whole words, ignoring case: `close` is not in `disclose`.
/// A word that ends in `*` is a prefix: `clos*` matches `closing`.
/// Without a rule, tasks keep their given order.
/// Of equal tasks, the first one counts.
/// This is Kahn's algorithm over indices, always with the first task that is free.
pub fn order(tasks: &[String], before: &[(String, String)]) -> Order {
    let mut kept: Vec<&str> = Vec::new();
    for task in tasks.iter().map(|task| task.trim()).filter(|task| !task.is_empty()) {
        if !kept.iter().any(|other| words(other) == words(task)) {
            kept.push(task);
        }
    }
    let split: Vec<Vec<String>> = kept.iter().map(|task| words(task)).collect();
    let precedes = |first: usize, second: usize| {
        first != second
            && before.iter().any(|(one, other)| has(&split[first], one) && has(&split[second], other))
    };
    let mut left: Vec<usize> = (0..kept.len()).collect();
    let mut placed = Vec::new();
    while let Some(at) = left.iter().position(|task| !left.iter().any(|other| precedes(*other, *task))) {
        placed.push(left.remove(at));
    }
    let named = |indices: &[usize]| indices.iter().map(|index| kept[*index].to_owned()).collect();
    if left.is_empty() {
        return Order { tasks: named(&placed), cycle: Vec::new() };
    }
    // Tasks that only come after the cycle aren't part of it.
    while let Some(at) = left.iter().position(|task| !left.iter().any(|other| precedes(*task, *other))) {
        left.remove(at);
    }
    Order { tasks: kept.iter().map(|task| (*task).to_owned()).collect(), cycle: named(&left) }
}

/// The words of a text in lower case; a `*` belongs to its word.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '*');
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Whether a task contains these words in sequence.
fn has(task: &[String], phrase: &str) -> bool {
    let phrase = words(phrase);
    let fits = |(word, wanted): (&String, &String)| match wanted.strip_suffix('*') {
        Some(beginning) => word.starts_with(beginning),
        None => word == wanted,
    };
    !phrase.is_empty() && task.windows(phrase.len()).any(|window| window.iter().zip(&phrase).all(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(tasks: &[&str], before: &[(&str, &str)]) -> Order {
        let tasks: Vec<String> = tasks.iter().map(|task| (*task).to_owned()).collect();
        let before: Vec<(String, String)> =
            before.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect();
        order(&tasks, &before)
    }

    #[test]
    fn rules_move_tasks_and_nothing_else_does() {
        let check = |tasks: &[&str], expected: &[&str]| {
            let rules = [("transfer", "clos*"), ("open", "clos*"), ("credit limit", "dispute")];
            let found = ordered(tasks, &rules);
            assert_eq!(
                (found.tasks, found.cycle),
                (expected.iter().map(|task| (*task).to_owned()).collect(), vec![])
            );
        };
        check(&["b", "a"], &["b", "a"]);
        check(&["c", "b", "a"], &["c", "b", "a"]);
        check(&["Close the account", "ask", "Transfer 5"], &["ask", "Transfer 5", "Close the account"]);
        check(&["disclose fees", "transfer 5"], &["disclose fees", "transfer 5"]);
        check(&["dispute it", "raise the credit-limit"], &["raise the credit-limit", "dispute it"]);
        check(&["dispute it", "limit credit"], &["dispute it", "limit credit"]);
        check(&["a", "A ", "", "b"], &["a", "b"]);
        check(&["transfer and close x"], &["transfer and close x"]);
        check(&[], &[]);
    }

    #[test]
    fn a_circle_is_told_and_changes_nothing() {
        let rules = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("x", "a")];
        let found = ordered(&["d", "c", "b", "a", "x"], &rules);
        assert_eq!(found.tasks, ["d", "c", "b", "a", "x"]);
        assert_eq!(found.cycle, ["c", "b", "a"]);
        let both = ordered(&["open and close 1", "open and close 2"], &[("open", "close")]);
        assert_eq!(both.cycle.len(), 2);
    }

    proptest::proptest! {
        /// Compares with the definition: an order without a broken rule, of the same tasks, and the
        /// first such by positions in the list.
        #[test]
        fn the_order_is_the_first_that_breaks_no_rule(
            tasks in proptest::collection::vec("[abcd]", 0..5),
            rules in proptest::collection::vec(("[abcd]", "[abcd]"), 0..5),
        ) {
            let found = order(&tasks, &rules);
            let mut unique: Vec<String> = Vec::new();
            for task in &tasks {
                if !unique.contains(task) {
                    unique.push(task.clone());
                }
            }
            let legal = |order: &[usize]| rules.iter().all(|(one, other)| {
                let at = |name: &String| order.iter().position(|index| unique[*index] == *name);
                one == other || at(one).zip(at(other)).is_none_or(|(one, other)| one < other)
            });
            let first = permutations(unique.len()).into_iter().find(|order| legal(order));
            match first {
                Some(first) => {
                    let expected: Vec<String> = first.iter().map(|index| unique[*index].clone()).collect();
                    proptest::prop_assert_eq!(found, Order { tasks: expected, cycle: vec![] });
                }
                None => {
                    proptest::prop_assert!(found.cycle.len() >= 2);
                    proptest::prop_assert_eq!(found.tasks, unique);
                }
            }
        }
    }

    /// All orders of `count` things, in lexicographic order.
    fn permutations(count: usize) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new()];
        for _ in 0..count {
            all = all
                .into_iter()
                .flat_map(|order: Vec<usize>| {
                    (0..count)
                        .filter(|next| !order.contains(next))
                        .map(|next| [order.clone(), vec![next]].concat())
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        all
    }
}
