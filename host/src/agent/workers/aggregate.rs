//! What is made of several reports.

use super::{Aggregation, WorkerOutcome, WorkerStatus};

/// The answer, with the number of workers that gave it if they voted. None where no worker decides it.
pub(super) fn decide(
    aggregation: Aggregation,
    workers: &[WorkerOutcome],
    first: Option<usize>,
) -> (Option<String>, Option<usize>) {
    let report = |index: usize| workers.get(index).and_then(|outcome| outcome.report.clone());
    match aggregation {
        Aggregation::Collect | Aggregation::Merge => (None, None),
        Aggregation::FirstSuccess => (first.and_then(report), None),
        Aggregation::Vote => match vote(workers) {
            Some((index, votes)) => (report(index), Some(votes)),
            None => (None, None),
        },
    }
}

/// The worker whose answer has the most votes, and how many; none at a tie. Only workers that did their task have a vote.
fn vote(workers: &[WorkerOutcome]) -> Option<(usize, usize)> {
    let mut ballots: Vec<(String, usize, usize)> = Vec::new();
    for (index, outcome) in workers.iter().enumerate().filter(|(_, outcome)| outcome.status == WorkerStatus::Done) {
        let answer = normal(outcome.report.as_deref().unwrap_or_default());
        match ballots.iter_mut().find(|(seen, ..)| *seen == answer) {
            Some((_, _, votes)) => *votes += 1,
            None => ballots.push((answer, index, 1)),
        }
    }
    let most = ballots.iter().map(|(_, _, votes)| *votes).max()?;
    let mut winners = ballots.iter().filter(|(_, _, votes)| *votes == most);
    match (winners.next(), winners.next()) {
        (Some((_, index, votes)), None) => Some((*index, *votes)),
        _ => None,
    }
}

fn normal(answer: &str) -> String {
    let words: Vec<&str> = answer.split_whitespace().collect();
    words.join(" ").trim_end_matches(['.', '!', '。', '！']).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::stop::RunUsage;

    fn outcomes(answers: &[(&str, WorkerStatus)]) -> Vec<WorkerOutcome> {
        let outcome = |(worker, (report, status)): (usize, &(&str, WorkerStatus))| WorkerOutcome {
            worker,
            run_id: None,
            status: *status,
            stop_reason: None,
            report: Some((*report).to_owned()),
            error: None,
            usage: RunUsage::default(),
        };
        (1..).zip(answers).map(outcome).collect()
    }

    #[test]
    fn the_most_frequent_answer_wins_and_a_tie_decides_nothing() {
        use WorkerStatus::{Done, Incomplete};
        for (answers, expected) in [
            (&[("579", Done), ("580", Done), (" 579. ", Done)][..], Some(("579", 2))),
            (&[("晴。", Done), ("雨", Done), ("晴", Done)], Some(("晴。", 2))),
            (&[("Yes!", Done), ("yes", Done), ("no", Done)], Some(("Yes!", 2))),
            (&[("a", Done), ("b", Done)], None),
            (&[("a", Incomplete), ("a", Incomplete), ("b", Done)], Some(("b", 1))),
            (&[], None),
        ] {
            let (answer, votes) = decide(Aggregation::Vote, &outcomes(answers), None);
            assert_eq!(answer.as_deref().zip(votes), expected, "{answers:?}");
        }
    }
}
