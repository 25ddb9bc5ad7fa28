//! Reads an expression and calculates it, in one pass (recursive descent).

use num_bigint::BigInt;

use crate::number::Number;

/// The most characters of an expression. With the largest number, it bounds the work.
const MAX_LENGTH: usize = 500;

/// How deep parentheses, signs and powers may nest; each level takes stack.
const MAX_DEPTH: u32 = 50;

type Outcome = Result<Number, String>;

/// Calculates an expression; the error says what is wrong with it.
pub(crate) fn evaluate(expression: &str) -> Outcome {
    if expression.chars().count() > MAX_LENGTH {
        return Err(format!("the expression is too long: {MAX_LENGTH} characters is the most"));
    }
    let text: Vec<char> = expression.chars().map(plain).filter(|c| !c.is_whitespace() || *c == ' ').collect();
    let mut parser = Parser { text: &text, at: 0, depth: 0 };
    if parser.peek().is_none() {
        return Err("the expression is empty".to_owned());
    }
    let number = parser.sum()?;
    match parser.peek() {
        None => Ok(number),
        Some(')') => Err("there is a `)` without `(`".to_owned()),
        Some(',') => Err("`,` only separates the arguments of a function; leave out thousands separators".to_owned()),
        Some(c) if c.is_alphanumeric() || c == '(' || c == '.' => Err(format!("an operator is missing before `{c}`")),
        Some(c) => Err(format!("`{c}` is not allowed in an expression")),
    }
}

/// The ASCII form of full-width characters (U+FF01 to U+FF5E) and of the signs of arithmetic.
fn plain(c: char) -> char {
    match c {
        '×' | '✕' | '⋅' => '*',
        '÷' | '∕' => '/',
        '−' => '-',
        '、' => ',',
        '\u{3000}' | '\n' | '\t' => ' ',
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        _ => c,
    }
}

struct Parser<'a> {
    text: &'a [char],
    at: usize,
    depth: u32,
}

impl Parser<'_> {
    fn sum(&mut self) -> Outcome {
        let mut left = self.product()?;
        loop {
            left = match self.peek() {
                Some('+') => left.add(&self.after_operator(Self::product)?)?,
                Some('-') => left.subtract(&self.after_operator(Self::product)?)?,
                _ => return Ok(left),
            };
        }
    }

    fn product(&mut self) -> Outcome {
        let mut left = self.signed()?;
        loop {
            left = match self.peek() {
                Some('*') => left.multiply(&self.after_operator(Self::signed)?)?,
                Some('/') => left.divide(&self.after_operator(Self::signed)?)?,
                Some('%') => left.remainder(&self.after_operator(Self::signed)?)?,
                _ => return Ok(left),
            };
        }
    }

    fn signed(&mut self) -> Outcome {
        match self.peek() {
            Some('-') => Ok(self.deeper(|parser| parser.after_operator(Self::signed))?.negate()),
            Some('+') => self.deeper(|parser| parser.after_operator(Self::signed)),
            _ => self.power(),
        }
    }

    /// Binds tighter than a sign on its left, and takes a sign on its right: `-2^-2` is `-(2^(-2))`.
    fn power(&mut self) -> Outcome {
        let base = self.atom()?;
        let stars = self.text.get(self.at..self.at + 2) == Some(&['*', '*']);
        if self.peek() != Some('^') && !stars {
            return Ok(base);
        }
        self.at += usize::from(stars);
        let exponent = self.deeper(|parser| parser.after_operator(Self::signed))?;
        base.power(&exponent)
    }

    fn atom(&mut self) -> Outcome {
        match self.peek() {
            Some('(') => {
                self.at += 1;
                let number = self.deeper(Self::sum)?;
                self.close()?;
                Ok(number)
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_alphabetic() => self.function(),
            Some(')') => Err("a number is missing before `)`".to_owned()),
            Some(c) => Err(format!("`{c}` is not allowed here; a number is expected")),
            None => Err("the expression ends too early; a number is missing".to_owned()),
        }
    }

    fn number(&mut self) -> Outcome {
        let text = self.take_while(|c| c.is_ascii_digit() || c == '.');
        let mut exponent = 0_i64;
        let bad = |text: &str| format!("`{text}` is not a number");
        if matches!(self.text.get(self.at), Some('e' | 'E')) {
            self.at += 1;
            let sign = if matches!(self.text.get(self.at), Some('+' | '-')) { self.take(1) } else { String::new() };
            let digits = format!("{sign}{}", self.take_while(|c| c.is_ascii_digit()));
            exponent = digits.parse::<i64>().map_err(|_| bad(&format!("{text}e{digits}")))?;
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        exponent = exponent.saturating_sub_unsigned(fraction.len() as u64);
        let mantissa = format!("{whole}{fraction}").parse::<BigInt>().map_err(|_| bad(&text))?;
        Number::decimal(mantissa, exponent)
    }

    fn function(&mut self) -> Outcome {
        let name = self.take_while(char::is_alphanumeric).to_lowercase();
        if self.peek() != Some('(') {
            return Err(format!("`{name}` is not a function that is called, as in `sqrt(2)`; there are no variables"));
        }
        self.at += 1;
        let mut arguments = Vec::new();
        while self.peek() != Some(')') {
            arguments.push(self.deeper(Self::sum)?);
            match self.peek() {
                Some(',') => self.at += 1,
                _ => break,
            }
        }
        self.close()?;
        apply(&name, &arguments)
    }

    fn close(&mut self) -> Result<(), String> {
        if self.peek() != Some(')') {
            return Err("a `)` is missing".to_owned());
        }
        self.at += 1;
        Ok(())
    }

    fn after_operator(&mut self, operand: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        self.at += 1;
        operand(self)
    }

    fn deeper(&mut self, inner: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("the expression is nested too deep: {MAX_DEPTH} levels is the most"));
        }
        let outcome = inner(self);
        self.depth -= 1;
        outcome
    }

    fn peek(&mut self) -> Option<char> {
        while self.text.get(self.at) == Some(&' ') {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let length = self.text.iter().skip(self.at).take_while(|c| wanted(**c)).count();
        self.take(length)
    }

    fn take(&mut self, length: usize) -> String {
        let taken = self.text.iter().skip(self.at).take(length).collect();
        self.at += length;
        taken
    }
}

fn apply(name: &str, arguments: &[Number]) -> Outcome {
    match (name, arguments) {
        ("sqrt", [x]) => x.square_root(),
        ("abs", [x]) => Ok(x.absolute()),
        ("floor", [x]) => Ok(x.floor()),
        ("ceil", [x]) => Ok(x.ceiling()),
        ("round", [x]) => x.round(0),
        ("round", [x, places]) => match places.to_small_integer() {
            Some(places @ -100..=100) => x.round(places),
            _ => Err("the second argument of `round` has to be a whole number from -100 to 100".to_owned()),
        },
        ("min", [first, rest @ ..]) => Ok(rest.iter().fold(first, |a, b| if b.is_less_than(a) { b } else { a }).clone()),
        ("max", [first, rest @ ..]) => Ok(rest.iter().fold(first, |a, b| if a.is_less_than(b) { b } else { a }).clone()),
        ("sqrt" | "abs" | "floor" | "ceil", _) => Err(format!("`{name}` takes 1 argument")),
        ("round", _) => Err("`round` takes 1 or 2 arguments".to_owned()),
        ("min" | "max", _) => Err(format!("`{name}` takes at least 1 argument")),
        _ => Err(format!("`{name}` is not a function; there are sqrt, abs, round, floor, ceil, min and max")),
    }
}
