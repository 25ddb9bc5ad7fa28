//! A calculator that is exact: `0.1 + 0.2` is `0.3`, and `2^100` has all its digits.

mod number;
mod parser;

use honeycomb_sdk::prelude::*;

/// Calculates an arithmetic expression exactly, with decimals and integers of any size. Use it for every calculation instead of
/// working it out yourself.
///
/// Operators: `+ - * /`, `%` (remainder, with the sign of the left side), `^` (power, whole exponents), parentheses. Functions:
/// `sqrt(x)`, `abs(x)`, `round(x)`, `round(x, places)`, `floor(x)`, `ceil(x)`, `min(a, b, …)`, `max(a, b, …)`. Returns the
/// result as text; `exact` is false when it had to be rounded to 30 significant digits, as for `1/3` or `sqrt(2)`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Calculate {
    /// The expression, such as `(123 + 456) * 1.08`. No thousands separators, units or variables; write 15 percent as `15/100`.
    #[schemars(length(min = 1, max = 500))]
    expression: String,
}

/// What came out.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct Calculation {
    /// The number, as text, so that no digit is lost.
    result: String,
    /// Whether every digit of the result is right and there are no more.
    exact: bool,
}

impl Tool for Calculate {
    const NAME: &'static str = "calculate";
    const TITLE: Option<&'static str> = Some("Calculator");
    const HINTS: Hints = Hints::READ_ONLY;
    type Output = Calculation;

    fn call(self, _context: &Context) -> Result<Calculation> {
        let number = parser::evaluate(&self.expression).map_err(Error::invalid_arguments)?;
        Ok(Calculation { result: number.to_text(), exact: number.is_exact() })
    }
}

honeycomb_sdk::export!(Calculate);
honeycomb_sdk::requests!("../requests.toml");

#[cfg(test)]
mod tests {
    use super::*;

    fn calculate(expression: &str) -> Result<Calculation> {
        Calculate { expression: expression.to_owned() }.call(&Context::test())
    }

    fn check(expression: &str, result: &str, exact: bool) {
        let calculation = calculate(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert_eq!(calculation, Calculation { result: result.to_owned(), exact }, "{expression}");
    }

    #[test]
    fn is_exact_where_that_is_possible() {
        for (expression, result) in [
            ("123 + 456", "579"),
            ("0.1 + 0.2", "0.3"),
            ("2^100", "1267650600228229401496703205376"),
            ("1/3*3", "1"),
            ("1/8", "0.125"),
            ("-1/8", "-0.125"),
            ("10/4", "2.5"),
            ("2^-2", "0.25"),
            ("1e3 + 1.5E-2", "1000.015"),
            ("007.50", "7.5"),
            (".5 + 5.", "5.5"),
            ("sqrt(2.25)", "1.5"),
            ("100000000000000000000 + 0.00000000000000000001", "100000000000000000000.00000000000000000001"),
        ] {
            check(expression, result, true);
        }
    }

    #[test]
    fn says_when_it_rounds() {
        for (expression, result) in [
            ("1/3", "0.333333333333333333333333333333"),
            ("2/3", "0.666666666666666666666666666667"),
            ("-200/3", "-66.6666666666666666666666666667"),
            ("1/3e40", "3.33333333333333333333333333333e-41"),
            ("10^40/3", "3333333333333333333333333333333333333333"),
            ("sqrt(2)", "1.41421356237309504880168872421"),
            ("sqrt(2)^2", "2"),
        ] {
            check(expression, result, false);
        }
    }

    #[test]
    fn follows_the_usual_order() {
        for (expression, result) in [
            ("2 + 3 * 4", "14"),
            ("(2 + 3) * 4", "20"),
            ("2 - 3 - 4", "-5"),
            ("24 / 4 / 3", "2"),
            ("2^3^2", "512"),
            ("-2^2", "-4"),
            ("(-2)^2", "4"),
            ("2^-1 * 4", "2"),
            ("--3", "3"),
            ("-7 % 3", "-1"),
            ("7 % -3", "1"),
            ("7.5 % 2", "1.5"),
            ("2**10", "1024"),
        ] {
            check(expression, result, true);
        }
    }

    #[test]
    fn knows_functions() {
        for (expression, result) in [
            ("abs(-3)", "3"),
            ("min(3, 1.5, 2)", "1.5"),
            ("max(3, 1.5, 2)", "3"),
            ("round(2.5)", "3"),
            ("round(-2.5)", "-3"),
            ("round(3.14159, 2)", "3.14"),
            ("round(1234, -2)", "1200"),
            ("floor(-1.5)", "-2"),
            ("ceil(1.2)", "2"),
            ("SQRT(16)", "4"),
        ] {
            check(expression, result, true);
        }
        check("round(2/3, 2)", "0.67", true);
    }

    #[test]
    fn reads_full_width_characters_and_signs() {
        check("１２３＋４５６", "579", true);
        check("（１－２）×３÷２", "-1.5", true);
        check("ｍａｘ（１，２）", "2", true);
        check("5 − 2", "3", true);
    }

    #[test]
    fn says_what_is_wrong() {
        for (expression, expected) in [
            ("", "empty"),
            ("1 +", "ends too early"),
            ("1 2", "an operator is missing before `2`"),
            ("2(3)", "an operator is missing before `(`"),
            ("(1", "`)` is missing"),
            ("1)", "`)` without `(`"),
            ("1,000", "thousands separators"),
            ("1 + x", "`x` is not a function"),
            ("1 = 1", "`=` is not allowed"),
            ("1.2.3", "`1.2.3` is not a number"),
            (".", "`.` is not a number"),
            ("sqrt(-1)", "square root of a negative"),
            ("sqrt()", "`sqrt` takes 1"),
            ("round(1, 2, 3)", "`round` takes 1 or 2"),
            ("round(1, 0.5)", "whole number"),
            ("min()", "`min` takes at least 1"),
            ("1/0", "division by zero"),
            ("1%0", "division by zero"),
            ("0^-1", "division by zero"),
            ("2^0.5", "use `sqrt(x)`"),
        ] {
            let error = calculate(expression).expect_err(expression);
            assert_eq!(error.kind(), ErrorKind::InvalidArguments, "{expression}");
            assert!(error.message().contains(expected), "{expression}: {error}");
        }
    }

    #[test]
    fn stops_before_a_calculation_grows_too_large() {
        let nested = format!("{}1{}", "(".repeat(200), ")".repeat(200));
        let signs = format!("{}1", "-".repeat(400));
        let long = format!("1{}", "+1".repeat(300));
        let growing = "9^4000*9^4000*9^4000";
        for expression in [
            "9^9^9^9",
            "2^1000000000",
            "2^-1000000000",
            "1e999999",
            "0.1e-9223372036854775808",
            "1.1^2000",
            growing,
            &nested,
            &signs,
            &long,
        ] {
            let error = calculate(expression).expect_err(expression);
            assert!(error.message().contains("too "), "{expression}: {error}");
        }
        check("1^1000000000000", "1", true);
        check("(-1)^1000000000001", "-1", true);
        check("0^0", "1", true);
    }
}
