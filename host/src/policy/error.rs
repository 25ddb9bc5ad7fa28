//! What is wrong with a policy file or a plugin's requests, where, and how to put it right.

use std::fmt;

use super::grant::RuleRef;

/// Errors beyond this number are counted, not kept: a file of a million typos must not become a million strings.
const MAX_ERRORS: usize = 100;

/// One thing that is wrong in a file.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub struct PolicyError {
    /// The file and the line.
    pub rule: RuleRef,
    /// The column in characters, counted from 1; 0 when the whole line or rule is meant.
    pub column: usize,
    /// What is wrong, and which.
    pub message: String,
    /// How to put it right.
    pub hint: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rule)?;
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        write!(f, ": {}\n  hint: {}", self.message, self.hint)
    }
}

/// All that is wrong, in the order of files and lines. Never empty.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub struct PolicyErrors {
    /// The errors, at most 100.
    pub errors: Vec<PolicyError>,
    /// How many more there were.
    pub omitted: usize,
}

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        if self.omitted > 0 {
            write!(f, "\n{} more errors", self.omitted)?;
        }
        Ok(())
    }
}

/// Something that is legal and deserves a look.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Warning {
    /// The file and the line.
    pub rule: RuleRef,
    /// What deserves a look.
    pub message: String,
    /// How to do without.
    pub hint: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  hint: {}", self.rule, self.message, self.hint)
    }
}

/// Errors and warnings as they are found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) errors: Vec<PolicyError>,
    pub(super) omitted: usize,
    pub(super) warnings: Vec<Warning>,
}

impl Findings {
    pub(super) fn error(&mut self, rule: &RuleRef, message: impl Into<String>, hint: impl Into<String>) {
        self.error_at(rule, 0, message.into(), hint.into());
    }

    pub(super) fn error_at(&mut self, rule: &RuleRef, column: usize, message: String, hint: String) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(PolicyError { rule: rule.clone(), column, message, hint });
        } else {
            self.omitted += 1;
        }
    }

    pub(super) fn warning(&mut self, rule: &RuleRef, message: impl Into<String>, hint: impl Into<String>) {
        if self.warnings.len() < MAX_ERRORS {
            self.warnings.push(Warning { rule: rule.clone(), message: message.into(), hint: hint.into() });
        }
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.omitted += other.omitted;
        for error in other.errors {
            self.error_at(&error.rule, error.column, error.message, error.hint);
        }
        self.warnings.extend(other.warnings);
    }

    /// The warnings, if there is no error. `files` gives the order of the errors.
    pub(super) fn finish(mut self, files: &[&str]) -> Result<Vec<Warning>, PolicyErrors> {
        let place = |rule: &RuleRef| files.iter().position(|&file| file == &*rule.file).unwrap_or(files.len());
        if self.errors.is_empty() {
            self.warnings.sort_by_key(|warning| (place(&warning.rule), warning.rule.line));
            return Ok(self.warnings);
        }
        self.errors.sort_by_key(|error| (place(&error.rule), error.rule.line, error.column));
        Err(PolicyErrors { errors: self.errors, omitted: self.omitted })
    }
}
