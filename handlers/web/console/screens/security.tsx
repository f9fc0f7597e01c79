import { Button, Notice, SwitchRow } from '../../shared/components.tsx';
import { FreezeButton } from '../../shared/freeze.tsx';
import { useT } from '../../shared/i18n.ts';
import { useConsole } from '../context.ts';
import { ResourceView, useAction, useFreeze } from '../parts.tsx';
import type { Security as Switches, Update } from '../stores/answers.ts';

/** Settings of the operator for the whole relay. */
export default function Security() {
  const t = useT();
  const { relay } = useConsole();
  return (
    <div class="screen">
      <section class="card" aria-labelledby="voice">
        <h2 id="voice">{t('Voice over plain http')}</h2>
        <ResourceView of={relay.security}>{(switches) => <VoiceSwitch switches={switches} />}</ResourceView>
      </section>
      <section class="card" aria-labelledby="proxy">
        <h2 id="proxy">{t('Behind a proxy')}</h2>
        <ResourceView of={relay.security}>
          {({ trust_proxy_headers: isTrusted }) => (
            <p>
              {isTrusted
                ? t('The relay takes the address of a caller from X-Forwarded-For of a proxy on its own machine.')
                : t('The relay believes no header about where a caller comes from.')}{' '}
              <span class="soft">
                {t('Change it with {name}, and restart the relay.', { name: 'RELAY_TRUST_PROXY_HEADERS' })}
              </span>
            </p>
          )}
        </ResourceView>
      </section>
      <section class="card" aria-labelledby="update">
        <h2 id="update">{t('Version')}</h2>
        <ResourceView of={relay.update}>{(update) => <UpdateState update={update} />}</ResourceView>
      </section>
      <section class="card" aria-labelledby="freeze">
        <h2 id="freeze">{t('Freeze')}</h2>
        <FreezeState />
      </section>
    </div>
  );
}

function FreezeState() {
  const t = useT();
  const freeze = useFreeze();
  if (freeze.freeze) return <p>{t('The agent can act on no device.')}</p>;
  return (
    <>
      <p>{t('Stops the agent on every phone and desktop at once. Your own shells, chats and messages go on.')}</p>
      <div class="actions">
        <FreezeButton {...freeze} withText />
      </div>
    </>
  );
}

function VoiceSwitch({ switches }: { switches: Switches }) {
  const t = useT();
  const { relay, isAway } = useConsole();
  const { isBusy, run } = useAction();
  const isOn = switches.allow_insecure_api_bearer;
  return (
    <>
      <SwitchRow
        label={t('Accept the API key without encryption')}
        hint={t('For development. Ends when the relay restarts.')}
        checked={isOn}
        disabled={isBusy || isAway.value}
        onChange={async (checked) => {
          const body = { allow_insecure_api_bearer: checked };
          const done = checked ? t('The API key is accepted now.') : t('The API key is refused now.');
          await run('relay/security', { method: 'PATCH', body }, done);
          void relay.security.refresh();
        }}
      />
      {isOn && (
        <Notice tone="warn">{t('Anybody between a client and this relay can read the API key of the agent.')}</Notice>
      )}
    </>
  );
}

function UpdateState({ update }: { update: Update }) {
  const t = useT();
  const { relay, isAway } = useConsole();
  const { isBusy, run } = useAction();
  const { current, latest, update_available: isNewer, update_command: command, error } = update;
  return (
    <>
      <p>
        {isNewer
          ? t('{latest} is out; this is {current}.', { latest: latest ?? '', current })
          : t('This is {current}.', { current })}{' '}
        {!isNewer && latest !== null && <span class="soft">{t('There is no newer one.')}</span>}
        {latest === null && <span class="soft">{error ?? t('It is not known whether there is a newer one.')}</span>}
      </p>
      {command !== null && (
        <p>
          <code>{command}</code>
        </p>
      )}
      <div class="actions">
        <Button
          icon="refresh"
          disabled={isBusy || isAway.value}
          onClick={async () => {
            await run('relay/update-check?refresh=1', {}, t('The releases were looked up.'));
            void relay.update.refresh();
          }}
        >
          {t('Look again')}
        </Button>
      </div>
    </>
  );
}
