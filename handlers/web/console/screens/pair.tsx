import { useSignal } from '@preact/signals';
import { type ComponentChildren, Fragment } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { NOT_FOR_BROWSERS } from '../../../../lib/pairing/web-link.ts';
import { ageText, useNow } from '../../shared/ages.ts';
import { Button, Dialog, inPage, Notice, TextField, useCopy, useToast } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { messageOf } from '../../shared/load.tsx';
import { QrCode } from '../../shared/qr.tsx';
import { hrefOf } from '../../shared/router.ts';
import { useConsole } from '../context.ts';
import { ResourceView, restoreFocus } from '../parts.tsx';
import { chosenOf, PolicyFields, usePolicy } from '../policy.tsx';
import { setTo } from '../signals.ts';
import type { Pending } from '../stores/answers.ts';
import type { Code, PairingKind } from '../stores/pairing.ts';
import { ROLES, useWay, WayFields, wayOf } from '../way.tsx';

/** Makes codes, shows their states, and admits requests to pair. */
export default function Pair() {
  const t = useT();
  const { pairing, relay } = useConsole();
  // The list of devices shows who has used a code.
  useEffect(() => relay.devices.watch(), [relay]);
  const code = pairing.code.value;
  return (
    <div class="screen">
      {code ? <ShownCode key={code.code} shown={code} /> : <NewCode />}
      <ResourceView of={relay.pending}>{(pending) => <Waiting pending={pending} />}</ResourceView>
      <p class="small soft">
        {t('In a terminal:')} <code>svc pair</code>
      </p>
    </div>
  );
}

const KINDS: readonly (readonly [PairingKind, string, string])[] = [
  ['app', 'App', 'A phone or computer with the app'],
  ['web', 'Browser', 'Any phone or computer, without installing anything'],
];

function NewCode() {
  const t = useT();
  const { pairing, isAway } = useConsole();
  const kind = useSignal<PairingKind>('app');
  const way = useWay();
  const policy = usePolicy();
  const busy = useSignal(false);
  const error = useSignal<string | undefined>(undefined);

  function choose(next: PairingKind): void {
    kind.value = next;
    policy.without.value = new Set(next === 'web' ? NOT_FOR_BROWSERS : []);
  }

  async function mint(): Promise<void> {
    busy.value = true;
    error.value = undefined;
    try {
      await pairing.mint({ kind: kind.value, ...chosenOf(policy), ...wayOf(way) });
    } catch (failure) {
      error.value = messageOf(failure);
    } finally {
      busy.value = false;
    }
  }

  return (
    <form class="card" onSubmit={inPage(() => void mint())}>
      <h2>{t('Pair a device')}</h2>
      <fieldset>
        <legend>{t('What will be paired')}</legend>
        {KINDS.map(([value, name, meaning]) => (
          <label key={value}>
            <input type="radio" name="kind" checked={kind.value === value} onChange={() => choose(value)} />
            <span class="lead">
              {t(name)}
              <span class="small soft">{t(meaning)}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <WayFields kind={kind.value} way={way} />
      <PolicyFields policy={policy} />
      {error.value !== undefined && <Notice tone="bad">{t(error.value)}</Notice>}
      <div class="actions">
        <Button type="submit" kind="primary" icon="plus" disabled={busy.value || isAway.value}>
          {t('Show a code')}
        </Button>
      </div>
    </form>
  );
}

function ShownCode({ shown }: { shown: Code }) {
  const t = useT();
  const box = useRef<HTMLElement>(null);
  // The pressed button is gone, so keyboards continue from here.
  useLayoutEffect(() => box.current?.focus(), []);
  const { pairing } = useConsole();
  const now = useNow();
  const state = pairing.stateAt(now.value / 1000);
  const startOver = () => {
    pairing.forget();
    restoreFocus();
  };
  const another = (
    <Button kind={state.kind === 'waiting' ? undefined : 'primary'} icon="plus" onClick={startOver}>
      {t(state.kind === 'waiting' ? 'Start over' : 'Pair another device')}
    </Button>
  );
  return (
    <section ref={box} class="card" tabIndex={-1} aria-label={t('Pairing code')}>
      <div role="status">
        {state.kind === 'used' && (
          <h2>
            {state.device ? t('Paired: {name}', { name: state.device.device_name }) : t('The code was used')}
            {state.device && <span class="soft"> ({state.device.device_platform || state.device.client_surface})</span>}
          </h2>
        )}
        {state.kind === 'expired' && (
          <>
            <h2>{t('The code has expired')}</h2>
            <p>{t('Codes are valid for ten minutes, and work once.')}</p>
          </>
        )}
      </div>
      {state.kind === 'waiting' ? (
        <Picture shown={shown} now={now.value}>
          {another}
        </Picture>
      ) : (
        <div class="actions">
          {state.kind === 'used' && (
            <a class="button" href={hrefOf('devices')}>
              {t('Show devices')}
            </a>
          )}
          {another}
        </div>
      )}
    </section>
  );
}

/** A pending code, to scan, type or copy. `now` is epoch milliseconds. */
function Picture({ shown, now, children }: { shown: Code; now: number; children: ComponentChildren }) {
  const t = useT();
  const copy = useCopy();
  const left = Math.max(0, Math.ceil(shown.expiresAt - now / 1000));
  return (
    <div class="code">
      <QrCode text={shown.qr} label={t('QR code that pairs a device')} />
      <div class="beside">
        <p>
          {shown.kind === 'web'
            ? t('Scan this with the camera of a phone, or open the link.')
            : t('Scan this with the app. The picture contains credentials: show it to nobody else.')}
        </p>
        <output class="big" aria-label={t('Code')}>
          {shown.code}
        </output>
        <p role="timer">
          {t('Good for {time}', { time: `${Math.floor(left / 60)}:${String(left % 60).padStart(2, '0')}` })}
        </p>
        {shown.kind === 'web' ? <p class="small wrap">{shown.link}</p> : <Contents shown={shown} />}
        <div class="row">
          <Button icon="copy" onClick={() => void copy(shown.link)}>
            {t('Copy the link')}
          </Button>
          {children}
        </div>
      </div>
    </div>
  );
}

/** The addresses in a code, and its other contents. */
function Contents({ shown: { routes, api, holdsKey } }: { shown: Code }) {
  const t = useT();
  return (
    <>
      <dl class="facts small">
        {routes.map(({ role, url }) => (
          <Fragment key={`${role} ${url}`}>
            <dt>{t(ROLES[role] ?? role)}</dt>
            <dd class="wrap">{url}</dd>
          </Fragment>
        ))}
        <dt>{t('API server')}</dt>
        <dd class="wrap">{api ?? t('disabled: the device reaches the relay only')}</dd>
      </dl>
      {holdsKey && (
        <p class="small soft">{t("It also holds the key of the agent's API server, which grants do not restrict.")}</p>
      )}
    </>
  );
}

function Waiting({ pending: { codes, requests } }: { pending: Pending }) {
  const t = useT();
  const now = useNow(5000);
  const asked = useSignal<string | undefined>(undefined);
  const leftOf = (expiresAt: number) => ageText(expiresAt * 1000 - now.value, t);
  return (
    <>
      <section aria-labelledby="requests">
        <h2 id="requests">{t('Requests to pair')}</h2>
        {requests.length === 0 ? (
          <p class="soft">{t('Nobody asks to pair.')}</p>
        ) : (
          <ul class="list">
            {requests.map(({ masked, peer, expires_at: expiresAt }) => (
              <li key={`${masked} ${peer} ${expiresAt}`} class="item wraps">
                <span class="text">
                  <b>{peer}</b>
                  <span class="small soft">
                    {t('code {masked}, for another {age}', { masked, age: leftOf(expiresAt) })}
                  </span>
                </span>
                <Button icon="check" onClick={setTo(asked, masked)}>
                  {t('Admit')}
                </Button>
              </li>
            ))}
          </ul>
        )}
      </section>
      {codes.length > 0 && (
        <section aria-labelledby="codes">
          <h2 id="codes">{t('Codes that can be used')}</h2>
          <ul class="list">
            {codes.map(({ masked, expires_at: expiresAt, without }) => (
              <li key={`${masked} ${expiresAt}`} class="item">
                <span class="text">
                  <code>{masked}</code>
                  <span class="small soft">
                    {t('for another {age}', { age: leftOf(expiresAt) })}
                    {without.length > 0 && ` · ${t('without {grants}', { grants: without.join(', ') })}`}
                  </span>
                </span>
              </li>
            ))}
          </ul>
        </section>
      )}
      {asked.value !== undefined && <Admit masked={asked.value} onClose={setTo(asked, undefined)} />}
    </>
  );
}

/** Admits a request to pair, by the whole code, which only the relay's log shows. */
function Admit({ masked, onClose }: { masked: string; onClose(): void }) {
  const t = useT();
  const toast = useToast();
  const { pairing, isAway } = useConsole();
  const typed = useSignal('');
  const policy = usePolicy();
  const error = useSignal<string | undefined>(undefined);

  async function admit(): Promise<void> {
    const code = typed.value.trim().toUpperCase();
    if (!/^[A-Z0-9]{6}$/.test(code) || !code.startsWith(masked.slice(0, 2))) {
      error.value = t('Type the six letters and digits of the code that begins with {start}.', {
        start: masked.slice(0, 2),
      });
      return;
    }
    try {
      await pairing.approve(code, chosenOf(policy));
      toast(t('The code is valid now. Give it to the person who asked.'));
      onClose();
    } catch (failure) {
      error.value = t(messageOf(failure));
    }
  }

  return (
    <Dialog
      title={t('Admit {masked}', { masked })}
      isAway={isAway.value}
      onClose={onClose}
      onSubmit={() => void admit()}
      submit={t('Admit')}
    >
      <p>{t('Only the log of the relay shows the whole code, so that nobody is admitted by mistake.')}</p>
      <p>
        <a class="link" href={hrefOf('logs', 'asks to pair')}>
          {t('Open the log')}
        </a>
      </p>
      <TextField
        label={t('Code')}
        error={error.value}
        of={typed}
        autocomplete="off"
        autocapitalize="characters"
        spellcheck={false}
        maxLength={6}
      />
      <PolicyFields policy={policy} />
    </Dialog>
  );
}
