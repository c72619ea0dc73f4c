//! Whether a store takes the accounts that identities have of their own there. In come the settings, out goes a line for each
//! account. Invariant: one GET for each, of [`ACCOUNTS_MAX`] at the most, and none after the first that is not answered.

use super::Ground;
use super::asker::{Asker, Tried};
use super::diagnosis::{Kind, Signed, of_refusal, of_silence};
use super::report::{Account, Report, Taken};
use crate::config::{BackendConfig, CredentialsConfig, IdentityConfig, KeyPairConfig};

/// Most accounts that are tried at one backend.
pub const ACCOUNTS_MAX: usize = 100;

/// An account at a store, and who has it.
#[derive(Debug)]
pub struct Held<'a> {
    /// The identities, by name.
    pub identities: Vec<&'a str>,
    /// Its pair.
    pub pair: &'a KeyPairConfig,
}

/// The accounts at `backend`, each once, in the order of the settings.
pub fn held<'a>(identities: &'a [IdentityConfig], backend: &str) -> Vec<Held<'a>> {
    let mut held: Vec<Held<'a>> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for identity in identities {
        let Some(pair) = identity.backend_credentials.get(backend) else { continue };
        let token = pair.session_token.as_ref().map(|token| token.expose());
        let at = *places.entry((&pair.access_key, pair.secret_key.expose(), token)).or_insert(held.len());
        match held.get_mut(at) {
            Some(known) => known.identities.push(&identity.name),
            None => held.push(Held { identities: vec![&identity.name], pair }),
        }
    }
    held
}

/// Asks for a list of buckets with each of them, as `config` has been found to work.
pub async fn try_all(config: &BackendConfig, ground: &Ground<'_>, report: &mut Report) {
    let table = format!("backend_credentials.{}", config.name);
    for held in ground.accounts.iter().take(ACCOUNTS_MAX) {
        let tried = ask(config, held.pair, ground).await;
        let signed = Signed { access_key: &held.pair.access_key, region: &config.region, table: Some(&table) };
        let problem = match &tried {
            Ok(said) => of_refusal(said, signed),
            Err(silence) => Some(of_silence(silence)),
        };
        let taken = match problem.as_ref().map(|problem| problem.kind) {
            None => Taken::Works,
            Some(Kind::Credentials | Kind::Region | Kind::Clock) => Taken::Refused,
            Some(_) => Taken::Unanswered,
        };
        let (why, fix) = problem.map_or_else(Default::default, |problem| (problem.why, problem.fix));
        report.accounts.push(Account {
            identities: held.identities.iter().map(|name| (*name).to_owned()).collect(),
            outcome: taken,
            code: tried.ok().and_then(|said| said.code),
            why,
            fix,
        });
        report.accounts_untried -= 1;
        if taken == Taken::Unanswered {
            break;
        }
    }
}

async fn ask(config: &BackendConfig, pair: &KeyPairConfig, ground: &Ground<'_>) -> Tried {
    let KeyPairConfig { access_key, secret_key, session_token } = pair.clone();
    let credentials = CredentialsConfig::Static { access_key, secret_key, session_token };
    Asker::open(&BackendConfig { credentials, ..config.clone() }, ground.now).await?.read("/").await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::{PolicySource, Secret};

    fn identity(name: &str, backend: &str, access_key: &str, secret_key: &str) -> IdentityConfig {
        let secret_key = Secret::new(secret_key);
        let pair = KeyPairConfig { access_key: access_key.into(), secret_key: secret_key.clone(), session_token: None };
        IdentityConfig {
            name: name.into(),
            access_key: name.into(),
            secret_key,
            session_token: None,
            policy: PolicySource::None,
            backend_credentials: BTreeMap::from([(backend.to_owned(), pair)]),
        }
    }

    #[test]
    fn an_account_that_several_have_is_one() {
        let all = [
            identity("a", "store", "AK", "s"),
            identity("b", "other", "AK", "s"),
            identity("c", "store", "AK", "another"),
            identity("d", "store", "AK", "s"),
        ];
        let held = held(&all, "store");
        let names: Vec<_> = held.iter().map(|held| held.identities.clone()).collect();
        assert_eq!(names, [vec!["a", "d"], vec!["c"]]);
        assert_eq!(held[1].pair.secret_key.expose(), "another");
    }
}
