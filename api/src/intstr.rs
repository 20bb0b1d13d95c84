//! Numbers that may be written as text.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Why a parallelism is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParallelismError {
    /// Below zero.
    #[error("parallelism is {0}; accepted are whole numbers from 0 on (0 pauses the job)")]
    Negative(i64),
    /// A percentage.
    #[error("parallelism is {0:?}; percentages are not accepted here, give a number of nodes")]
    Percent(String),
    /// Not a number.
    #[error("parallelism is {0:?}; accepted are whole numbers from 0 on (0 pauses the job)")]
    NotANumber(String),
}

/// How many nodes may pull at once: a number, a number in quotes, or 1 when unset.
///
/// # Errors
/// Negative numbers, percentages and other texts.
pub fn parallelism(value: Option<&IntOrString>) -> Result<u32, ParallelismError> {
    let number = match value {
        None => return Ok(1),
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) if text.ends_with('%') => {
            return Err(ParallelismError::Percent(text.clone()));
        }
        Some(IntOrString::String(text)) => text
            .parse::<i32>()
            .map_err(|_| ParallelismError::NotANumber(text.clone()))?,
    };
    u32::try_from(number).map_err(|_| ParallelismError::Negative(i64::from(number)))
}

#[cfg(test)]
mod tests {
    use super::{ParallelismError, parallelism};
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::{Int, String};

    #[test]
    fn table() {
        assert_eq!(parallelism(None), Ok(1));
        assert_eq!(parallelism(Some(&Int(0))), Ok(0));
        assert_eq!(parallelism(Some(&Int(50))), Ok(50));
        assert_eq!(parallelism(Some(&String("50".into()))), Ok(50));
        assert_eq!(parallelism(Some(&Int(-1))), Err(ParallelismError::Negative(-1)));
        assert_eq!(
            parallelism(Some(&String("-2".into()))),
            Err(ParallelismError::Negative(-2))
        );
        assert_eq!(
            parallelism(Some(&String("10%".into()))),
            Err(ParallelismError::Percent("10%".into()))
        );
        assert!(parallelism(Some(&String("99999999999".into()))).is_err());
        assert!(parallelism(Some(&String("all".into()))).is_err());
    }
}
