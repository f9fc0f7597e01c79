import { type Signal, useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { grantsLeft } from '../../../lib/operator/device-state.ts';
import { DAY, GRANTS, type Grants } from '../../../lib/sessions/grants.ts';
import { ageText, useNow } from './ages.ts';
import type { Api } from './api.ts';
import { Chip, Choice, Dialog, Question } from './components.tsx';
import { useI18n, useT } from './i18n.ts';
import { useCall } from './load.tsx';

/** A paired device on both pages: a row of `GET /sessions`, or of `GET /relay/devices`. */
export interface DeviceFacts {
  token_prefix: string;
  device_name: string;
  client_surface: string;
  device_platform: string;
  device_model: string;
  /** Epoch seconds; null = never. */
  expires_at: number | null;
  /** True if its session ends so soon that the relay reports it (contract 11 §2). */
  ends_soon?: boolean;
  grants: Grants;
}

const HOUR = 3600;

/** Description of each grant. `voice` stands for its four grants. */
const MEANINGS: Readonly<Record<string, string>> = {
  chat: 'Talk to the agent',
  voice: 'Speak with the agent',
  terminal: 'Open shells on this machine',
  tui: "Use the agent's own screen",
  bridge: 'Let the agent use the device',
  desktop: 'Offer tools of a computer',
  files: 'Send and receive files',
  profiles: "Read and change the agent's profiles",
  phone: 'Get messages, and answer them',
  devices: 'See and revoke other devices',
};

/** The grants as people choose them: those of voice are one. */
export const GRANT_NAMES: readonly string[] = Object.keys(MEANINGS);

const meaningOf = (grant: string): string => MEANINGS[grant] ?? grant;

/** The names of all grants behind a chosen one. */
export const expandGrant = (name: string, grants: readonly string[] = GRANTS): string[] =>
  grants.filter((grant) => grant === name || grant.startsWith(`${name}:`));

/** A lifetime in words: `1 day`, `12 hours`. */
export function useDurationText(): (seconds: number) => string {
  const { t, language } = useI18n();
  return (seconds) => {
    if (seconds === 0) return t('until it is revoked');
    const [unit, length] = seconds < DAY ? (['hour', HOUR] as const) : (['day', DAY] as const);
    const format = new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay: 'long' });
    return format.format(Math.round(seconds / length));
  };
}

interface GrantChoiceProps {
  legend: string;
  names: readonly string[];
  /** The grants that are not chosen. */
  without: Signal<ReadonlySet<string>>;
  /** Chosen seconds, and what there is to choose: as text, with words for them; the empty one is what it has otherwise. */
  durations: Signal<Readonly<Record<string, number>>>;
  choices(name: string): readonly (readonly [value: string, text: string])[];
}

/** Which grants a device gets, and for how long. */
export function GrantChoice({ legend, names, without, durations, choices }: GrantChoiceProps) {
  const t = useT();
  return (
    <fieldset>
      <legend>{legend}</legend>
      {names.map((name) => (
        <div key={name} class="grant">
          <label>
            <input
              type="checkbox"
              checked={!without.value.has(name)}
              onChange={(event) => {
                const next = new Set(without.value);
                if (event.currentTarget.checked) next.delete(name);
                else next.add(name);
                without.value = next;
              }}
            />
            <span class="lead">
              {name}
              <span class="small soft">{t(meaningOf(name))}</span>
            </span>
          </label>
          {!without.value.has(name) && (
            <select
              class="input"
              aria-label={t('How long: {name}', { name })}
              value={String(durations.value[name] ?? '')}
              onChange={({ currentTarget: { value } }) => {
                const { [name]: _former, ...others } = durations.value;
                durations.value = value === '' ? others : { ...others, [name]: Number(value) };
              }}
            >
              {choices(name).map(([value, text]) => (
                <option key={value} value={value}>
                  {text}
                </option>
              ))}
            </select>
          )}
        </div>
      ))}
    </fieldset>
  );
}

/** A device's kind, session, and grants with their remaining time. */
export function DeviceFactList({ row, children }: { row: DeviceFacts; children?: ComponentChildren }) {
  const t = useT();
  const now = useNow();
  const kind = [row.device_platform || row.client_surface, row.device_model]
    .filter((text) => text !== '' && text !== 'unknown')
    .join(', ');
  const left = grantsLeft(row.grants, row.expires_at, now.value / 1000);
  return (
    <dl class="facts">
      <dt>{t('Kind')}</dt>
      <dd>{kind === '' ? t('Not known') : kind}</dd>
      <dt>{t('Session')}</dt>
      <dd>
        <code>{row.token_prefix}</code>{' '}
        {row.expires_at === null
          ? t('never ends')
          : t('ends in {age}', { age: ageText(row.expires_at * 1000 - now.value, t) })}{' '}
        {row.ends_soon && <Chip tone="warn">{t('Ends soon')}</Chip>}
      </dd>
      <dt>{t('May use')}</dt>
      <dd>
        {left.length === 0
          ? t('nothing')
          : left
              .map(({ name, seconds }) => (seconds === null ? name : `${name} ${ageText(seconds * 1000, t)}`))
              .join(', ')}
      </dd>
      {children}
    </dl>
  );
}

interface DialogProps<Row = DeviceFacts> {
  api: Api;
  row: Row;
  /** True if the relay does not answer, so that changes are disabled. */
  isAway?: boolean;
  onClose(): void;
  /** Called after the relay has done it. */
  onDone(): void;
}

/** Ends the session of a device, and its shells unless they are to be kept (contract 01 §6.4, 02 §1.5). */
export function RevokeDialog({
  api,
  row,
  isAway,
  onClose,
  onDone,
  own = false,
}: DialogProps<Pick<DeviceFacts, 'token_prefix' | 'device_name'>> & { own?: boolean }) {
  const t = useT();
  const keepsShells = useSignal(false);
  const { isBusy, run } = useCall(api);

  async function revoke(): Promise<void> {
    const query = keepsShells.value ? '?keep_shells=1' : '';
    const done = own ? t('Signed out.') : t('Revoked {name}.', { name: row.device_name });
    if (!(await run(`sessions/${row.token_prefix}${query}`, { method: 'DELETE' }, done))) return;
    onClose();
    onDone();
  }

  return (
    <Question
      title={own ? t('Sign out this device?') : t('Revoke {name}?', { name: row.device_name })}
      confirm={own ? t('Sign out') : t('Revoke')}
      isBusy={isBusy}
      isAway={isAway}
      onConfirm={() => void revoke()}
      onClose={onClose}
    >
      <p>
        {own
          ? t('Its session ends and the pairing is forgotten here. To come back, it has to be paired again.')
          : t('It is disconnected at once, and has to be paired again to come back.')}
      </p>
      <label class="check">
        <input
          type="checkbox"
          checked={keepsShells.value}
          onChange={(event) => {
            keepsShells.value = event.currentTarget.checked;
          }}
        />
        <span class="lead">
          {t('Leave its shells in tmux')}
          <span class="small soft">{t('Otherwise they end, with everything that runs in them.')}</span>
        </span>
      </label>
    </Question>
  );
}

const SHORTER = [HOUR, DAY, 7 * DAY, 30 * DAY];

/** Removes rights; nothing is ever extended (contract 01 §6.4). */
export function ReduceDialog({ api, row, isAway, onClose, onDone }: DialogProps) {
  const t = useT();
  const text = useDurationText();
  const ttl = useSignal('');
  const without = useSignal<ReadonlySet<string>>(new Set());
  const durations = useSignal<Readonly<Record<string, number>>>({});
  const { isBusy, run } = useCall(api);
  const now = Date.now() / 1000;
  const held = [...new Set(grantsLeft(row.grants, row.expires_at, now).map(({ name }) => name))];
  const left = row.expires_at === null ? Number.POSITIVE_INFINITY : row.expires_at - now;
  const shorter = Object.entries(durations.value).filter(([name]) => !without.value.has(name));
  const isNothing = ttl.value === '' && without.value.size === 0 && shorter.length === 0;

  /** Seconds that a grant has left. */
  function leftOf(grant: string): number {
    const end = row.grants[grant];
    return end == null ? Number.POSITIVE_INFINITY : end - now;
  }
  const grantsOf = (name: string): string[] => expandGrant(name, Object.keys(row.grants));

  async function reduce(): Promise<void> {
    const reduced = [
      // One second is the minimum, since 0 would mean never.
      ...[...without.value].flatMap(grantsOf).map((grant) => [grant, 1] as const),
      ...shorter.flatMap(([name, seconds]) =>
        grantsOf(name)
          .filter((grant) => leftOf(grant) > seconds)
          .map((grant) => [grant, seconds] as const),
      ),
    ];
    const body = {
      ...(reduced.length > 0 && { grants: Object.fromEntries(reduced) }),
      ...(ttl.value !== '' && { ttl_seconds: Number(ttl.value) }),
    };
    const done = t('Reduced {name}.', { name: row.device_name });
    if (!(await run(`sessions/${row.token_prefix}`, { method: 'PATCH', body }, done))) return;
    onClose();
    onDone();
  }

  return (
    <Dialog
      title={t('Reduce {name}', { name: row.device_name })}
      onClose={onClose}
      isAway={isAway}
      onSubmit={() => void reduce()}
      submit={t('Reduce')}
      isBlocked={isBusy || isNothing}
    >
      <p>{t('What is taken away does not come back: to give more, pair the device again.')}</p>
      <Choice
        label={t('Its session ends')}
        value={ttl.value}
        options={[
          ['', t('as before')],
          ...SHORTER.filter((seconds) => seconds < left).map(
            (seconds) => [String(seconds), t('in {age}', { age: text(seconds) })] as const,
          ),
        ]}
        onChange={(value) => {
          ttl.value = value;
        }}
      />
      <GrantChoice
        legend={t('Grants it keeps')}
        names={held}
        without={without}
        durations={durations}
        choices={(name) => [
          ['', t('as before')],
          ...SHORTER.filter((seconds) => grantsOf(name).some((grant) => leftOf(grant) > seconds)).map(
            (seconds) => [String(seconds), text(seconds)] as const,
          ),
        ]}
      />
    </Dialog>
  );
}
