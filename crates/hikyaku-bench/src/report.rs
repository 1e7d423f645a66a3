//! What was measured, and how it is shown.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// Something that can be measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
}

impl Measure {
    pub(crate) const fn lower(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, better: Better::Lower }
    }

    pub(crate) const fn higher(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, better: Better::Higher }
    }
}

/// One measure of a row over its rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    /// In the order in which they were measured, one at least.
    pub(crate) rounds: Vec<f64>,
    /// What the machine, or the undisturbed program, did in the same run.
    pub(crate) limit: Option<f64>,
    /// At most this, or at least this.
    pub(crate) goal: Option<f64>,
}

impl Figure {
    fn sorted(&self) -> Vec<f64> {
        let mut rounds = self.rounds.clone();
        rounds.sort_by(f64::total_cmp);
        rounds
    }

    pub(crate) fn median(&self) -> f64 {
        let rounds = self.sorted();
        let middle = rounds.len() / 2;
        match rounds.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => rounds[middle],
            _ => f64::midpoint(rounds[middle - 1], rounds[middle]),
        }
    }

    pub(crate) fn least(&self) -> f64 {
        self.sorted().first().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn most(&self) -> f64 {
        self.sorted().last().copied().unwrap_or(f64::NAN)
    }

    fn is_met(&self) -> Option<bool> {
        self.goal.map(|goal| match self.better {
            Better::Lower => self.median() <= goal,
            Better::Higher => self.median() >= goal,
        })
    }

    fn cells(&self) -> [String; 7] {
        let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), shown);
        let sign = if self.better == Better::Lower { "≤" } else { "≥" };
        let met = match self.is_met() {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        [
            format!("{}, {}", self.name, self.unit),
            shown(self.median()),
            format!("{}–{}", shown(self.least()), shown(self.most())),
            number(self.limit),
            self.limit.map_or_else(|| "–".to_owned(), |limit| format!("{:.2}", self.median() / limit)),
            self.goal.map_or_else(|| "–".to_owned(), |goal| format!("{sign} {}", shown(goal))),
            met.to_owned(),
        ]
    }
}

/// A number with three digits that count.
fn shown(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 || v == 0.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// One row of the table: something that the program does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// What a reader must know of how it was measured.
    pub(crate) note: String,
    pub(crate) figures: Vec<Figure>,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, note: impl Into<String>) -> Self {
        Self { name: name.into(), note: note.into(), figures: Vec::new() }
    }

    /// Adds what one round brought.
    pub(crate) fn add(&mut self, measure: Measure, value: f64) {
        self.figure(measure).rounds.push(value);
    }

    /// Says what the same thing costs at least, and how much of that we may take.
    pub(crate) fn limit(&mut self, measure: Measure, limit: f64, factor: Option<f64>) {
        let figure = self.figure(measure);
        figure.limit = Some(limit);
        figure.goal = factor.map(|factor| factor * limit);
    }

    pub(crate) fn goal(&mut self, measure: Measure, goal: f64) {
        self.figure(measure).goal = Some(goal);
    }

    pub(crate) fn median(&self, measure: Measure) -> f64 {
        self.figures.iter().find(|figure| figure.name == measure.name).map_or(f64::NAN, Figure::median)
    }

    fn figure(&mut self, measure: Measure) -> &mut Figure {
        let known = self.figures.iter().position(|figure| figure.name == measure.name);
        let at = known.unwrap_or_else(|| {
            let Measure { name, unit, better } = measure;
            let (name, unit) = (name.to_owned(), unit.to_owned());
            self.figures.push(Figure { name, unit, better, rounds: Vec::new(), limit: None, goal: None });
            self.figures.len() - 1
        });
        &mut self.figures[at]
    }
}

/// Everything that one run has measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) date: String,
    pub(crate) command: String,
    pub(crate) version: String,
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
}

/// As a table of Markdown.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, hikyaku {}, {}\n\n`{}`\n", self.date, self.version, self.machine, self.command)?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "### {}\n\n{}\n", self.name, self.note)?;
        writeln!(f, "| | median | spread | limit | of the limit | goal | met |\n|---|---|---|---|---|---|---|")?;
        self.figures.iter().try_for_each(|figure| writeln!(f, "| {} |", figure.cells().join(" | ")))
    }
}
