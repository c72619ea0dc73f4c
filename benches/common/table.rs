//! Figures as people and programs read them. What enters are samples, one for each round; what leaves is an aligned table, or
//! one JSON object. Invariant: every figure is the median of its rounds, with the lowest and the highest beside it.

use batchgate::load::report::aligned;
use serde_json::{Value, json};

/// One measure with its rows.
pub struct Table {
    /// Name of the measure.
    pub name: &'static str,
    /// What was compared with what.
    pub about: String,
    /// Heads of the columns of figures, with their units.
    pub columns: Vec<&'static str>,
    /// What each row is about, and its figures.
    pub rows: Vec<(String, Vec<Option<Samples>>)>,
    /// What the rows say about the goals.
    pub goals: Vec<Goal>,
    /// A bound that was not kept: the run fails once this is printed.
    pub broken: Option<String>,
}

/// One figure, measured in several rounds.
#[derive(Clone, Debug)]
pub struct Samples(Vec<f64>);

/// A ratio or an amount that is meant to be on one side of a limit.
pub struct Goal {
    /// What it is.
    pub what: String,
    /// How it came out.
    pub samples: Samples,
    /// Which side is meant.
    pub meant: Meant,
}

/// A side of a limit.
#[derive(Clone, Copy)]
pub enum Meant {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// No goal; it informs.
    Anything,
}

impl Samples {
    /// One figure a round.
    pub fn new(mut rounds: Vec<f64>) -> Self {
        assert!(!rounds.is_empty(), "a measure has at least one round");
        rounds.sort_by(f64::total_cmp);
        Self(rounds)
    }

    /// The middle one; of an even number the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        let n = self.0.len();
        (self.0[(n - 1) / 2] + self.0[n / 2]) / 2.0
    }

    fn spread(&self) -> (f64, f64) {
        (self.0[0], self.0[self.0.len() - 1])
    }

    fn to_text(&self) -> String {
        let (low, high) = self.spread();
        if self.0.len() == 1 {
            return number(low);
        }
        format!("{} ({} - {})", number(self.median()), number(low), number(high))
    }

    fn to_json(&self) -> Value {
        let (low, high) = self.spread();
        json!({"median": self.median(), "low": low, "high": high, "rounds": self.0.len()})
    }
}

impl Goal {
    fn verdict(&self) -> (String, Option<bool>) {
        let median = self.samples.median();
        match self.meant {
            Meant::AtMost(limit) => (format!("goal: at most {}", number(limit)), Some(median <= limit)),
            Meant::AtLeast(limit) => (format!("goal: at least {}", number(limit)), Some(median >= limit)),
            Meant::Anything => ("no goal".to_owned(), None),
        }
    }
}

/// Three significant digits or all before the point.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

impl Table {
    /// For people.
    pub fn to_text(&self) -> String {
        let mut grid = vec![std::iter::once(String::new()).chain(self.columns.iter().map(|c| (*c).to_owned())).collect::<Vec<_>>()];
        for (what, figures) in &self.rows {
            let cells = figures.iter().map(|cell| cell.as_ref().map_or_else(|| "-".to_owned(), Samples::to_text));
            grid.push(std::iter::once(what.clone()).chain(cells).collect());
        }
        let rounds = self.rows.iter().flat_map(|(_, figures)| figures).flatten().map(|f| f.0.len()).max().unwrap_or(0);
        let spread = if rounds > 1 { format!("; median (lowest - highest) of {rounds}") } else { String::new() };
        let mut text = format!("{}: {}{spread}\n", self.name, self.about);
        text += &aligned(&grid);
        let goals: Vec<_> = self
            .goals
            .iter()
            .map(|goal| {
                let (meant, met) = goal.verdict();
                let verdict = met.map_or("", |met| if met { "met" } else { "MISSED" });
                vec![goal.what.clone(), goal.samples.to_text(), meant, verdict.to_owned()]
            })
            .collect();
        text += &aligned(&goals);
        text
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|(what, figures)| {
                let cells = self.columns.iter().zip(figures).filter_map(|(c, f)| Some(((*c).to_owned(), f.as_ref()?.to_json())));
                json!({"what": what, "figures": cells.collect::<serde_json::Map<_, _>>()})
            })
            .collect();
        let goals: Vec<_> = self
            .goals
            .iter()
            .map(|goal| {
                let (meant, met) = goal.verdict();
                json!({"what": goal.what, "figure": goal.samples.to_json(), "meant": meant, "met": met})
            })
            .collect();
        json!({"name": self.name, "about": self.about, "rows": rows, "goals": goals})
    }
}
