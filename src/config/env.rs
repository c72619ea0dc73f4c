//! Which variables of the environment are settings. What enters is the environment; what leaves are those that look like settings
//! and are none, for whoever would look for their effect in vain.

/// What every environment variable that is a setting begins with. A Service called `batchgate` makes Kubernetes inject
/// `BATCHGATE_SERVICE_HOST` and the like; the second underscore keeps them apart.
pub(super) const PREFIX: &str = "BATCHGATE__";

/// The tables and lists of the settings.
const SECTIONS: [&str; 8] = ["SERVER", "ADMIN", "BACKENDS", "ROUTES", "IDENTITIES", "BATCH", "TAIL", "LOG"];

/// A sentence for each variable that was meant as a setting, by its name, but does not begin as one. What Kubernetes tells every pod
/// of a Service called `batchgate` or `batchgate-admin` is none of them
/// (<https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables>).
pub fn overlooked(env: &[(String, String)]) -> Vec<String> {
    let look = |(name, _): &(String, String)| {
        let rest = name.strip_prefix("BATCHGATE_").filter(|rest| !rest.starts_with('_'))?;
        let begins = |section: &str| rest.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        let is_meant = rest.contains("__") || SECTIONS.iter().any(|section| begins(section));
        let message = format!("{name} is no setting and has no effect: the names of settings begin with {PREFIX}, two underscores");
        (is_meant && !is_of_service(rest)).then_some(message)
    };
    env.iter().filter_map(look).collect()
}

/// Whether this ends the name of a variable about a Service: `…SERVICE_HOST`, `…SERVICE_PORT_HTTP`, `…PORT`, `…PORT_80_TCP_ADDR`.
fn is_of_service(rest: &str) -> bool {
    let of_port =
        |tail: &str| tail.is_empty() || tail.strip_prefix('_').is_some_and(|tail| tail.starts_with(|c: char| c.is_ascii_digit()));
    rest.contains("SERVICE_HOST")
        || rest.contains("SERVICE_PORT")
        || rest.match_indices("PORT").any(|(at, port)| of_port(&rest[at + port.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_setting_and_is_none_is_named() {
        let said = |name: &str| overlooked(&[(name.to_owned(), "secret".to_owned())]);
        for name in [
            "BATCHGATE_LOG__LEVEL",
            "BATCHGATE_LOG_LEVEL",
            "BATCHGATE_SERVER__LISTEN",
            "BATCHGATE_BACKENDS__0__NAME",
            "BATCHGATE_LGO__LEVEL",
        ] {
            let expected =
                format!("{name} is no setting and has no effect: the names of settings begin with BATCHGATE__, two underscores");
            assert_eq!(said(name), [expected]);
        }
        for name in [
            "BATCHGATE__LOG__LEVEL",
            "BATCHGATE_SERVICE_HOST",
            "BATCHGATE_SERVICE_PORT",
            "BATCHGATE_SERVICE_PORT_S3",
            "BATCHGATE_PORT",
            "BATCHGATE_PORT_9000_TCP",
            "BATCHGATE_PORT_9000_TCP_ADDR",
            "BATCHGATE_ADMIN_SERVICE_HOST",
            "BATCHGATE_ADMIN_PORT",
            "BATCHGATE_ADMIN_PORT_9001_TCP_PROTO",
            "BATCHGATE_BIN",
            "BATCHGATE_E2E_SCALE",
            "BATCHGATE_CAMPAIGN",
            "BATCHGATE",
            "OTHER_LOG__LEVEL",
        ] {
            assert_eq!(said(name), [""; 0], "{name}");
        }
    }
}
