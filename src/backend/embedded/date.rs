//! Dates as S3 writes and reads them: HTTP dates in headers, ISO 8601 in documents. Whole seconds, as both have no more. Pure.

use time::OffsetDateTime;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Seconds since 1970, in UTC.
pub type Seconds = i64;

fn parts(seconds: Seconds) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 section 5.6.7).
pub fn http_date(seconds: Seconds) -> String {
    let t = parts(seconds);
    let day = DAYS[usize::from(t.weekday().number_days_from_monday())];
    let month = MONTHS[usize::from(u8::from(t.month())) - 1];
    format!("{day}, {:02} {month} {:04} {:02}:{:02}:{:02} GMT", t.day(), t.year(), t.hour(), t.minute(), t.second())
}

/// `1994-11-06T08:49:37.000Z`.
pub fn iso_date(seconds: Seconds) -> String {
    let t = parts(seconds);
    let (month, day) = (u8::from(t.month()), t.day());
    format!("{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.000Z", t.year(), t.hour(), t.minute(), t.second())
}

/// Reads an HTTP date in the form that senders must use; nothing for any other, which RFC 9110 has a recipient ignore.
pub fn parse_http_date(text: &[u8]) -> Option<Seconds> {
    let text = std::str::from_utf8(text).ok()?;
    let (day_name, rest) = text.split_once(", ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let [day, month, year, clock, "GMT"] = fields.as_slice() else { return None };
    let month = 1 + MONTHS.iter().position(|name| name == month)?;
    let clock: Vec<&str> = clock.split(':').collect();
    let [hour, minute, second] = clock.as_slice() else { return None };
    let number = |text: &str, digits: usize| {
        (text.len() == digits && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse::<u16>().ok()).flatten()
    };
    let month = time::Month::try_from(month as u8).ok()?;
    let date = time::Date::from_calendar_date(i32::from(number(year, 4)?), month, number(day, 2)? as u8).ok()?;
    let time = time::Time::from_hms(number(hour, 2)? as u8, number(minute, 2)? as u8, number(second, 2)? as u8).ok()?;
    DAYS.contains(&day_name).then(|| date.with_time(time).assume_utc().unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(iso_date(784_111_777), "1994-11-06T08:49:37.000Z");
        assert_eq!(parse_http_date(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
    }

    #[test]
    fn what_was_written_is_read() {
        for seconds in [0, 951_782_400, 1_795_976_706, 4_102_444_799] {
            assert_eq!(parse_http_date(http_date(seconds).as_bytes()), Some(seconds));
        }
        for text in
            ["", "yesterday", "Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 31 Feb 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT"]
        {
            assert_eq!(parse_http_date(text.as_bytes()), None, "{text}");
        }
    }
}
