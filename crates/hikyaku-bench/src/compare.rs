//! Whether a later run is slower than an earlier one.

use crate::report::{Better, Figure, Report};

/// What is not worth a word, as a part of the median: below it the rounds of one run differ by chance alone.
const MIN_CHANGE: f64 = 0.05;

/// What has become worse from `before` to `after`, one sentence each: figures of which every round is worse than the worst
/// round before, and figures that are no longer there.
pub(crate) fn regressions(before: &Report, after: &Report) -> Vec<String> {
    let mut found = Vec::new();
    for row in &before.rows {
        let Some(now) = after.rows.iter().find(|now| now.name == row.name) else {
            found.push(format!("{}: was not measured again", row.name));
            continue;
        };
        for figure in &row.figures {
            match now.figures.iter().find(|now| now.name == figure.name) {
                Some(now) => found.extend(worse(figure, now).map(|worse| format!("{}: {worse}", row.name))),
                None => found.push(format!("{}: {} was not measured again", row.name, figure.name)),
            }
        }
    }
    found
}

/// How one figure has become worse, if it has beyond the spread of both runs.
fn worse(before: &Figure, after: &Figure) -> Option<String> {
    let (old, new) = (before.median(), after.median());
    let change = (new - old) / old.abs();
    let is_worse = match before.better {
        Better::Lower => after.least() > before.most() && change > MIN_CHANGE,
        Better::Higher => after.most() < before.least() && change < -MIN_CHANGE,
    };
    is_worse
        .then(|| format!("{} was {old:.1} {}, and is {new:.1} ({:+.0} %)", before.name, before.unit, 100.0 * change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::report::Row;

    fn figure(better: Better, rounds: &[f64]) -> Figure {
        Figure { name: "CPU".into(), unit: "µs".into(), better, rounds: rounds.to_vec(), limit: None, goal: None }
    }

    fn report(rows: Vec<(&str, Vec<Figure>)>) -> Report {
        let row = |(name, figures): (&str, _)| Row { name: name.into(), note: String::new(), figures };
        let machine = Machine { cpus: 2, model: String::new(), memory_mib: 1, kernel: String::new() };
        let [date, command, version] = ["", "", ""].map(str::to_owned);
        Report { date, command, version, machine, rows: rows.into_iter().map(row).collect() }
    }

    #[test]
    fn only_what_is_worse_beyond_the_spread_of_both_runs_is_named() {
        let table: [(Better, &[f64], &[f64], bool); 10] = [
            (Better::Lower, &[10.0, 11.0, 12.0], &[12.5, 13.0, 14.0], true),
            (Better::Lower, &[10.0, 11.0, 12.0], &[12.0, 13.0, 14.0], false), // they touch
            (Better::Lower, &[10.0, 11.0, 20.0], &[12.5, 13.0, 14.0], false), // it was uneven before
            (Better::Lower, &[10.0, 11.0, 12.0], &[5.0, 6.0, 7.0], false),    // it is better
            (Better::Lower, &[100.0], &[104.0], false),                       // too little
            (Better::Lower, &[100.0], &[106.0], true),
            (Better::Higher, &[100.0, 110.0, 120.0], &[80.0, 85.0, 90.0], true),
            (Better::Higher, &[100.0, 110.0, 120.0], &[80.0, 85.0, 101.0], false),
            (Better::Higher, &[100.0, 110.0, 120.0], &[200.0, 210.0, 220.0], false),
            (Better::Higher, &[100.0], &[96.0], false),
        ];
        for (better, before, after, expected) in table {
            let found = worse(&figure(better, before), &figure(better, after));
            assert_eq!(found.is_some(), expected, "{better:?} {before:?} {after:?}: {found:?}");
        }
    }

    #[test]
    fn a_regression_is_told_with_its_row_and_by_how_much() {
        let before = report(vec![("single", vec![figure(Better::Lower, &[10.0])])]);
        let after = report(vec![("single", vec![figure(Better::Lower, &[15.0])])]);
        assert_eq!(regressions(&before, &after), ["single: CPU was 10.0 µs, and is 15.0 (+50 %)"]);
        assert_eq!(regressions(&after, &before), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_is_told_and_what_is_new_is_not() {
        let one = || vec![figure(Better::Lower, &[10.0])];
        let before = report(vec![("single", one()), ("batch", one())]);
        let after = report(vec![("single", vec![]), ("new", one())]);
        let expected = ["single: CPU was not measured again", "batch: was not measured again"];
        assert_eq!(regressions(&before, &after), expected);
    }
}
