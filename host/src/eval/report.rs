//! What came of all scenarios: for people, for scripts, and as JUnit's XML for build servers.

use std::fmt::Write as _;

use serde::Serialize;

use super::attempt::Attempt;
use crate::text::clean;

/// What came of all scenarios.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Scenarios whose every attempt came out as it should.
    pub passed: usize,
    /// Scenarios with an attempt that did not, or that could not be made.
    pub failed: usize,
    /// Each scenario, by name.
    pub scenarios: Vec<ScenarioReport>,
}

/// What came of one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioReport {
    /// Its file's path below the directory, without the ending.
    pub name: String,
    /// What it shows.
    pub description: String,
    /// Somebody tries to make the agent do harm.
    pub adversarial: bool,
    /// Attempts that came out as they should.
    pub passed: usize,
    /// Attempts.
    pub attempts: usize,
    /// What was wrong with the first attempt that failed.
    pub problems: Vec<String>,
    /// Milliseconds of all attempts.
    pub ms: u64,
}

impl ScenarioReport {
    /// A report without attempts.
    pub fn new(name: &str, description: &str, adversarial: bool) -> Self {
        let (name, description) = (name.to_owned(), description.to_owned());
        Self { name, description, adversarial, passed: 0, attempts: 0, problems: Vec::new(), ms: 0 }
    }

    /// Adds an attempt.
    pub fn add(&mut self, attempt: Attempt) {
        self.attempts += 1;
        self.ms = self.ms.saturating_add(u64::try_from(attempt.took.as_millis()).unwrap_or(u64::MAX));
        if attempt.problems.is_empty() {
            self.passed += 1;
        } else if self.problems.is_empty() {
            self.problems = attempt.problems;
        }
    }

    /// Whether each attempt came out as it should.
    pub fn is_passed(&self) -> bool {
        self.attempts > 0 && self.passed == self.attempts
    }

    fn word(&self) -> &'static str {
        match self.passed {
            _ if self.is_passed() => "ok",
            0 => "FAILED",
            _ => "FLAKY",
        }
    }
}

impl Report {
    /// Puts the scenarios in order and counts them.
    pub fn new(mut scenarios: Vec<ScenarioReport>) -> Self {
        scenarios.sort_by(|a, b| a.name.cmp(&b.name));
        let passed = scenarios.iter().filter(|scenario| scenario.is_passed()).count();
        Self { passed, failed: scenarios.len() - passed, scenarios }
    }
}

/// The report as a table.
pub fn table(report: &Report) -> String {
    let width = report.scenarios.iter().map(|scenario| scenario.name.chars().count()).max().unwrap_or(0);
    let mut table = String::new();
    for scenario in &report.scenarios {
        let ScenarioReport { name, passed, attempts, ms, description, .. } = scenario;
        let rate = if *attempts > 1 { format!(" {passed}/{attempts}") } else { String::new() };
        let pad = " ".repeat(width - name.chars().count());
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{:6}{rate} {name}{pad} {ms:>6} ms  {}", scenario.word(), clean(description, 200));
        for problem in &scenario.problems {
            let _ = writeln!(table, "         {}", clean(problem, 2_000));
        }
    }
    let _ = writeln!(table, "{} passed, {} failed", report.passed, report.failed);
    table
}

/// The report in the XML that JUnit made and build servers read.
pub fn junit(report: &Report) -> String {
    let total = report.scenarios.len();
    let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
    let all: u64 = report.scenarios.iter().map(|scenario| scenario.ms).sum();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"honeycomb evals\" tests=\"{total}\" failures=\"{}\" \
         errors=\"0\" time=\"{}\">\n",
        report.failed,
        seconds(all)
    );
    for scenario in &report.scenarios {
        let _ = write!(
            xml,
            "<testcase classname=\"{}\" name=\"{}\" time=\"{}\"",
            if scenario.adversarial { "adversarial" } else { "benign" },
            escape(&scenario.name),
            seconds(scenario.ms)
        );
        if scenario.is_passed() {
            xml.push_str("/>\n");
            continue;
        }
        let first = scenario.problems.first().map_or("no attempt was made", String::as_str);
        let text = scenario.problems.join("\n");
        let _ = writeln!(xml, "><failure message=\"{}\">{}</failure></testcase>", escape(first), escape(&text));
    }
    xml.push_str("</testsuite>\n</testsuites>\n");
    xml
}

/// Text for an attribute or an element. What XML 1.0 cannot hold, control characters above all, is left out.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in clean(text, 8 * 1024).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_scenario_that_fails_now_and_then_is_flaky_and_says_why() {
        let mut scenario = ScenarioReport::new("a/天气", "it shows", true);
        let took = Duration::from_millis(7);
        scenario.add(Attempt { problems: Vec::new(), took });
        scenario.add(Attempt { problems: vec!["<b> & \u{1}\"x\"".to_owned()], took });
        let fine = ScenarioReport { passed: 1, attempts: 1, ..ScenarioReport::new("b", "", false) };
        let report = Report::new(vec![fine, scenario]);
        assert_eq!((report.passed, report.failed), (1, 1));
        let table = table(&report);
        assert!(
            table.contains("FLAKY  1/2 a/天气") && table.contains("<b> &") && table.ends_with("1 passed, 1 failed\n"),
            "{table}"
        );
        let xml = junit(&report);
        assert!(
            xml.contains("tests=\"2\" failures=\"1\"") && xml.contains("<failure message=\"&lt;b&gt; &amp; &quot;x&quot;\">"),
            "{xml}"
        );
        assert!(xml.contains("<testcase classname=\"benign\" name=\"b\" time=\"0.000\"/>"), "{xml}");
    }
}
