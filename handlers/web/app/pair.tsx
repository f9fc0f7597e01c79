import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { Endpoint } from '../../../lib/companion/link/endpoints.ts';
import { useNow } from '../shared/ages.ts';
import { Button, Choice, Field, inPage, Notice, TextField, useToast } from '../shared/components.tsx';
import { useI18n } from '../shared/i18n.ts';
import { messageOf } from '../shared/load.tsx';
import type { AppShellProps } from './app.tsx';
import { Camera } from './camera.tsx';
import { useApp } from './context.ts';
import { MAX_NAME } from './devices/max-name.ts';
import { useFlag } from './flag.ts';
import { describeBrowser, type LinkCode, readCode } from './launch.ts';
import { lifetimeOptions, limitFor, limitSession } from './lifetime.ts';
import type { PairResult, Session } from './session.ts';
import { PlainHttp, TierNotice } from './tier.tsx';

type Attempt =
  | { name: 'idle' }
  | { name: 'busy' }
  /** `until`: epoch ms until which the relay refuses every attempt. */
  | { name: 'failed'; text: string; until?: number };

/** Pairs this browser with the code of a link, a typed one, or one from the camera. */
export default function Pair({ code, isKept }: AppShellProps) {
  const { t } = useI18n();
  const app = useApp();
  const { session, settings, shares } = app;
  const toast = useToast();
  const typed = useSignal(code.value?.code ?? '');
  const attempt = useSignal<Attempt>({ name: 'idle' });
  const scanning = useFlag();
  /** The last link. Its code may be sent again from the field, with its secret. */
  const linked = useRef<LinkCode | null>(null);
  const { all_insecure_pair_ack_seen: consent } = settings.values;
  const mayPair = isSecureContext || consent.value;

  /** Ends an attempt; a paired page is shown again. `seconds` until the relay accepts the next one. */
  function fail(text: string, seconds?: number): void {
    attempt.value = { name: 'failed', text, until: seconds === undefined ? undefined : Date.now() + seconds * 1000 };
    if (session.pairing.value) toast(text);
    code.value = null;
  }

  async function pair(read: LinkCode | null): Promise<void> {
    if (read?.secret) linked.current = read;
    if (read === null) {
      fail(t('A pairing code has six letters and digits.'));
      return;
    }
    attempt.value = { name: 'busy' };
    const result = await redeem(session, linked.current?.code === read.code ? linked.current : read);
    switch (result.kind) {
      case 'paired': {
        code.value = null;
        const expiresAt = session.pairing.value?.expires_at ?? null;
        const limit = limitFor(settings.values, { expiresAt, now: Date.now() / 1000, isPlain: !isSecureContext });
        if (limit !== null) await limitSession(app, limit).catch((error) => toast(t(messageOf(error))));
        return;
      }
      case 'at-home':
        fail(
          t(
            'This is the mailbox of a relay, which does not know this code. Open the link of the code at the relay itself, or make one for here with: svc pair --web --via edge',
          ),
        );
        break;
      case 'refused':
        fail(
          t('The relay does not accept this code: it works once, for ten minutes. Make a new one with: svc pair --web'),
        );
        break;
      case 'limited':
        fail(t('Too many wrong codes came from here.'), result.seconds);
        break;
      case 'restricted':
        fail(t('Others have tried many wrong codes. Open or scan a new link of: svc pair --web'), result.seconds);
        break;
      case 'unreachable':
        fail(t('The relay does not answer. The code is still valid: try again.'));
    }
  }

  const reset = () => {
    attempt.value = { name: 'idle' };
  };

  // Opening a link is a decision already made; over plain http, it waits for the consent.
  useEffect(() => {
    if (code.value === null || attempt.peek().name === 'busy') return;
    typed.value = code.value.code;
    if (mayPair) void pair(code.value);
  }, [code.value, mayPair]);

  const state = session.state.value;
  const canLook = isSecureContext && navigator.mediaDevices !== undefined;
  const failed = attempt.value.name === 'failed' ? attempt.value : null;
  return (
    <div class="screen">
      <h1>{t('Pair this browser')}</h1>
      <p class="soft">
        {t('On the machine of the relay, run this command and scan its code, or type it here.')}{' '}
        <code>svc pair --web</code>
      </p>
      {state.name === 'unpaired' && state.reason !== undefined && (
        <Notice tone="bad">
          {t('The relay no longer knows this browser: its session was revoked or has ended. Pair it again.')}
        </Notice>
      )}
      {shares.pending.value && (
        <Notice>{t('What another app has shared waits here until this browser is paired.')}</Notice>
      )}
      {!mayPair && <PlainHttp />}
      {mayPair && (
        <form class="card" onSubmit={inPage(() => void pair(readCode(typed.value)))}>
          <TextField
            label={t('Pairing code')}
            error={failed && !failed.until ? failed.text : undefined}
            of={typed}
            autocomplete="one-time-code"
            autocapitalize="characters"
            autocorrect="off"
            spellcheck={false}
            enterkeyhint="go"
            maxLength={200}
          />
          <Field label={t('Name of this device')} hint={t('So that you tell it from others, such as: Phone of Anna')}>
            {(control) => (
              <input
                {...control}
                class="input"
                maxLength={MAX_NAME}
                placeholder={describeBrowser()}
                value={settings.values.device_name.value}
                onInput={(event) => settings.set('device_name', event.currentTarget.value)}
              />
            )}
          </Field>
          {failed?.until ? (
            <Countdown text={failed.text} until={failed.until} onOver={reset} />
          ) : (
            <Button type="submit" kind="primary" icon="link" disabled={attempt.value.name === 'busy'}>
              {attempt.value.name === 'busy' ? t('Pairing') : t('Pair')}
            </Button>
          )}
        </form>
      )}
      {mayPair && (
        <Choice
          label={t('Lifetime of a session')}
          hint={t('Used when this browser pairs. The host sets the longest lifetime; a page can only shorten it.')}
          value={String(settings.values.pair_ttl_seconds.value)}
          options={lifetimeOptions(t).map(([seconds, text]) => [String(seconds), text])}
          onChange={(value) => settings.set('pair_ttl_seconds', Number(value))}
        />
      )}
      {mayPair && scanning.isOn && (
        <Camera
          onText={(text) => {
            const seen = readCode(text);
            if (seen === null) return false;
            scanning.off();
            typed.value = seen.code;
            void pair(seen);
            return true;
          }}
          onClose={scanning.off}
        />
      )}
      {mayPair && canLook && !scanning.isOn && (
        <Button icon="camera" onClick={scanning.on}>
          {t('Scan the code with the camera')}
        </Button>
      )}
      {!isKept && (
        <Notice tone="warn">
          {t('This window keeps nothing: the pairing ends when you close it. Open the page in a normal window.')}
        </Notice>
      )}
      <TierNotice />
    </div>
  );
}

/** As worded by the relay. */
const GOOD_AT_HOME = /good at home$/;

/** At the edge of a home, redeems a code of home at home, if the page can reach it (contract 12 §3). */
async function redeem(session: Session, code: LinkCode): Promise<PairResult | { kind: 'at-home' }> {
  const here = await session.pair(code);
  if (here.kind !== 'refused' || !GOOD_AT_HOME.test(here.reason)) return here;
  const home = await homeRoutes();
  const there = home.length > 0 ? await session.pair(code, home) : here;
  return there.kind === 'unreachable' || there === here ? { kind: 'at-home' } : there;
}

/** The routes home that this page's policy allows. */
async function homeRoutes(): Promise<Endpoint[]> {
  const page = await fetch('./', { cache: 'no-store', credentials: 'omit' }).catch(() => null);
  const [, origins = ''] = /connect-src 'self' ([^;]*)/.exec(page?.headers.get('content-security-policy') ?? '') ?? [];
  const sockets = origins.split(' ').filter((origin) => origin.startsWith(isSecurePage() ? 'wss:' : 'ws'));
  return sockets.map((origin, priority) => ({ role: 'home', url: `${origin}/ws`, priority }));
}

const isSecurePage = (): boolean => location.protocol === 'https:';

/** Counts down until the relay accepts an attempt again. */
function Countdown({ text, until, onOver }: { text: string; until: number; onOver(): void }) {
  const { t } = useI18n();
  const now = useNow(250).value;
  const left = Math.max(0, Math.ceil((until - now) / 1000));
  const isOver = left === 0;
  useEffect(() => {
    if (isOver) onOver();
  }, [isOver]);
  const minutes = Math.floor(left / 60);
  const seconds = String(left % 60).padStart(2, '0');
  return (
    <Notice tone="bad">
      {text} {t('Next attempt in {time}.', { time: `${minutes}:${seconds}` })}
    </Notice>
  );
}
