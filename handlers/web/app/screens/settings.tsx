import { useSignal } from '@preact/signals';
import { Button, Choice, Field, SwitchRow, useToast } from '../../shared/components.tsx';
import { LANGUAGES, useT } from '../../shared/i18n.ts';
import { messageOf } from '../../shared/load.tsx';
import { BackupCard } from '../backup-view.tsx';
import { useApp } from '../context.ts';
import { KnockSwitches } from '../knock/switches.tsx';
import type { SettingValues } from '../settings.ts';

/** Every setting of the specification (2.1 and 8): what this browser can do, and why it cannot do the rest. */
export default function Settings() {
  return (
    <div class="screen">
      <Appearance />
      <ChatSettings />
      <KnockSwitches />
      <Attachments />
      <SessionSettings />
      <BackupCard />
      <Cannot />
    </div>
  );
}

function Appearance() {
  const t = useT();
  const { settings } = useApp();
  const { theme, language } = settings.values;
  return (
    <section class="card" aria-labelledby="appearance">
      <h2 id="appearance">{t('Appearance')}</h2>
      <Choice
        label={t('Theme')}
        value={theme.value}
        options={[
          ['auto', t('As the system')],
          ['light', t('Light')],
          ['dark', t('Dark')],
        ]}
        onChange={(value) => settings.set('theme', value)}
      />
      <Choice
        label={t('Language')}
        value={language.value}
        options={[['auto', t('As the browser')], ...Object.entries(LANGUAGES)]}
        onChange={(value) => settings.set('language', value)}
      />
    </section>
  );
}

function ChatSettings() {
  const t = useT();
  const { settings } = useApp();
  const { tool_display, show_reasoning } = settings.values;
  return (
    <section class="card" aria-labelledby="chat-settings">
      <h2 id="chat-settings">{t('Chat')}</h2>
      <SwitchRow
        label={t('Show reasoning')}
        hint={t('What the model thinks before it answers, folded.')}
        checked={show_reasoning.value}
        onChange={(value) => settings.set('show_reasoning', value)}
      />
      <Choice
        label={t('Tool calls')}
        value={tool_display.value}
        options={[
          ['off', t('Off')],
          ['compact', t('Compact')],
          ['detailed', t('Detailed')],
        ]}
        onChange={(value) => settings.set('tool_display', value)}
      />
    </section>
  );
}

type NumberKey = { [Key in keyof SettingValues]: SettingValues[Key] extends number ? Key : never }[keyof SettingValues];

interface NumberProps {
  of: NumberKey;
  label: string;
  hint: string;
  min: number;
  max: number;
}

/** A number within its range. One outside of it is shown as wrong and not taken. */
function NumberField({ of, label, hint, min, max }: NumberProps) {
  const t = useT();
  const { settings } = useApp();
  const typed = useSignal(String(settings.values[of].value));
  const isValid = (text: string) => /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max;
  return (
    <Field
      label={label}
      hint={hint}
      error={isValid(typed.value) ? undefined : t('A whole number from {min} to {max}.', { min, max })}
    >
      {(control) => (
        <input
          {...control}
          class="input"
          inputMode="numeric"
          value={typed.value}
          onInput={(event) => {
            typed.value = event.currentTarget.value;
            if (isValid(typed.value)) settings.set(of, Number(typed.value));
          }}
        />
      )}
    </Field>
  );
}

function Attachments() {
  const t = useT();
  return (
    <section class="card" aria-labelledby="attachments">
      <h2 id="attachments">{t('Attachments')}</h2>
      <NumberField
        of="max_inbound_mb"
        label={t('Largest file to load, MB')}
        hint={t('From 5 to 100; 25 unless you change it.')}
        min={5}
        max={100}
      />
      <NumberField
        of="auto_fetch_mb"
        label={t('Load by itself up to, MB')}
        hint={t('From 0 to 50; 2 unless you change it. What is larger waits for a tap in chats and messages.')}
        min={0}
        max={50}
      />
    </section>
  );
}

const DAY = 86_400;
const LIFETIMES = [
  [DAY, '1 day'],
  [7 * DAY, '7 days'],
  [30 * DAY, '30 days'],
  [90 * DAY, '90 days'],
  [365 * DAY, '1 year'],
  [0, 'no end'],
] as const;

/** The session and the plain http of this browser. */
function SessionSettings() {
  const t = useT();
  const { api, session, settings } = useApp();
  const toast = useToast();
  const { pair_ttl_seconds, insecure_reason, insecure_ack_seen } = settings.values;

  async function shorten(): Promise<void> {
    const prefix = session.token()?.slice(0, 8);
    try {
      await api.call(`sessions/${prefix}`, { method: 'PATCH', body: { ttl_seconds: pair_ttl_seconds.value } });
      toast(t('This session is now limited.'));
    } catch (error) {
      toast(t(messageOf(error)));
    }
  }

  function askAgain(): void {
    settings.set('insecure_ack_seen', false);
    settings.set('insecure_reason', '');
    settings.set('all_insecure_pair_ack_seen', false);
  }

  return (
    <section class="card" aria-labelledby="session">
      <h2 id="session">{t('Session')}</h2>
      <Choice
        label={t('Lifetime')}
        hint={t('The host decides how long a session may last. This page can only shorten its own.')}
        value={String(pair_ttl_seconds.value)}
        options={LIFETIMES.map(([seconds, text]) => [String(seconds), t(text)])}
        onChange={(value) => settings.set('pair_ttl_seconds', Number(value))}
      />
      <div class="row">
        <Button disabled={pair_ttl_seconds.value === 0} onClick={() => void shorten()}>
          {t('Limit this session to it')}
        </Button>
      </div>
      {insecure_ack_seen.value && (
        <div class="row apart">
          <span class="small soft">{t('Plain http was accepted: {reason}', { reason: insecure_reason.value })}</span>
          <Button onClick={askAgain}>{t('Ask again')}</Button>
        </div>
      )}
    </section>
  );
}

/** Settings of the phone's app that a page has no use for, by their keys. */
const CANNOT = [
  ['tofu_pins', 'The browser checks certificates by itself, and shows a page no key to pin.'],
  ['API Server URL, API Key', 'This page talks to its relay alone, which keeps the key of the API server.'],
  ['Dashboard URL', 'The dashboard is a page of its own: open it at its own address.'],
  ['Relay URL', 'The relay is where this page came from.'],
  [
    'bridge_trusted_destructive_verbs',
    'A browser carries out no calls to a phone. Set it on the phone, or with svc companion.',
  ],
  [
    'notification_triggers',
    'A browser does not see the notifications of other apps. Set them on the phone, or with svc companion.',
  ],
  ['dynamic colors', 'A browser does not tell a page the colours of the system.'],
  ['auto-fetch on cellular', 'A browser does not tell a page which network it uses.'],
  ['cached media cap', 'The browser decides by itself how much it keeps.'],
  [
    'token usage, personality',
    'The relay passes on the words of the agent, and neither counts tokens nor chooses its manner.',
  ],
  ['share phone status', 'A browser knows nothing of the phone that it runs on.'],
] as const;

function Cannot() {
  const t = useT();
  return (
    <details class="card">
      <summary>{t('What only the app of a phone can set')}</summary>
      <dl class="reasons">
        {CANNOT.map(([key, reason]) => [
          <dt key={key}>
            <code>{key}</code>
          </dt>,
          <dd key={`${key} reason`} class="small soft">
            {t(reason)}
          </dd>,
        ])}
      </dl>
    </details>
  );
}
