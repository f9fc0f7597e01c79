import { useSignal } from '@preact/signals';
import { type Liveness, livenessOf } from '../../../../lib/operator/device-state.ts';
import { ageText, timeText, useNow } from '../../shared/ages.ts';
import type { Api } from '../../shared/api.ts';
import { Button, Chip, Dialog, Empty, TextField } from '../../shared/components.tsx';
import { DeviceFactList, ReduceDialog, RevokeDialog } from '../../shared/devices.tsx';
import { useI18n, useT } from '../../shared/i18n.ts';
import { useCall } from '../../shared/load.tsx';
import { hrefOf } from '../../shared/router.ts';
import { useConsole } from '../context.ts';
import { ResourceView, restoreFocus, useRefresh } from '../parts.tsx';
import { setTo } from '../signals.ts';
import type { ConnectionRow, DeviceRow } from '../stores/answers.ts';

/** Milliseconds between updates of ages and round trips, which no event reports. */
const PERIOD = 5000;

/** Devices that are shown at first, and with each step. */
const STEP = 50;
/** Number of devices from which a filter is shown. */
const MANY = 10;

/** The paired devices with their state and their rights. */
export default function Devices() {
  const t = useT();
  const { relay } = useConsole();
  useRefresh(relay.devices, PERIOD);
  return (
    <div class="screen">
      <ResourceView of={relay.devices}>
        {(rows, at) =>
          rows.length === 0 ? (
            <Empty
              icon="devices"
              action={
                <a class="button primary" href={hrefOf('pair')}>
                  {t('Pair a device')}
                </a>
              }
            >
              {t('No device is paired.')}
            </Empty>
          ) : (
            <List rows={rows} at={at} />
          )
        }
      </ResourceView>
      <Ended />
    </div>
  );
}

/** The sessions that ended within 30 days, and why (contract 11 §2). */
function Ended() {
  const t = useT();
  const { language } = useI18n();
  const { relay } = useConsole();
  const isOpen = useSignal(false);
  return (
    <details
      onToggle={({ currentTarget }) => {
        isOpen.value = currentTarget.open;
      }}
    >
      <summary>{t('Ended sessions')}</summary>
      {isOpen.value && (
        <ResourceView of={relay.ended}>
          {(rows) =>
            rows.length === 0 ? (
              <p>{t('No session has ended within 30 days.')}</p>
            ) : (
              <ul class="stack">
                {rows.map(({ token_prefix, device_name, ended_at, reason }) => (
                  <li key={token_prefix}>
                    <span dir="auto">{device_name}</span> <code>{token_prefix}</code>{' '}
                    <span class="soft">
                      {timeText(ended_at * 1000, language)} · {reason}
                    </span>
                  </li>
                ))}
              </ul>
            )
          }
        </ResourceView>
      )}
    </details>
  );
}

function List({ rows, at }: { rows: readonly DeviceRow[]; at: number }) {
  const t = useT();
  const filter = useSignal('');
  const limit = useSignal(STEP);
  const wanted = filter.value.trim().toLowerCase();
  // In an order that no sign of life changes, since a moved element loses the focus, and its dialog.
  const matching = rows
    .filter((row) =>
      [row.device_name, row.token_prefix, row.device_platform, row.device_model].some((text) =>
        text.toLowerCase().includes(wanted),
      ),
    )
    .sort((a, b) => b.created_at - a.created_at || a.token_prefix.localeCompare(b.token_prefix));
  return (
    <>
      {rows.length > MANY && (
        <TextField label={t('Filter')} of={filter} type="search" placeholder={t('Name or session')} />
      )}
      {matching.length === 0 && <Empty icon="devices">{t('No device matches.')}</Empty>}
      <ul class="stack">
        {matching.slice(0, limit.value).map((row) => (
          <li key={row.token_prefix}>
            <Device row={row} at={at} />
          </li>
        ))}
      </ul>
      {matching.length > limit.value && (
        <Button
          onClick={() => {
            limit.value += STEP;
          }}
        >
          {t('More: {n}', { n: matching.length - limit.value })}
        </Button>
      )}
    </>
  );
}

function Device({ row, at }: { row: DeviceRow; at: number }) {
  const t = useT();
  const now = useNow();
  const { api, isAway, relay } = useConsole();
  const open = useSignal<'rename' | 'reduce' | 'revoke' | undefined>(undefined);
  const extending = useCall(api);
  const close = setTo(open, undefined);
  const liveness = livenessOf({ ...row }, now.value / 1000, now.value - at);
  const dialog = {
    api,
    row,
    isAway: isAway.value,
    onClose: close,
    onDone: () => void relay.devices.refresh().then(restoreFocus),
  };
  /** Renews the durations of its pairing, with one tap (contract 11 §2). */
  async function extend(): Promise<void> {
    const done = t('Extended {name}.', { name: row.device_name });
    const isDone = await extending.run(`sessions/${row.token_prefix}/extend`, { method: 'POST', body: {} }, done);
    if (isDone) await relay.devices.refresh();
  }

  return (
    <article class="card" aria-label={row.device_name}>
      <div class="row apart">
        <h2 dir="auto">{row.device_name}</h2>
        <StateChip liveness={liveness} />
      </div>
      <DeviceFactList row={row}>
        {row.connections.map((connection) => (
          <Connection key={connection.id} row={connection} elapsed={Math.max(0, now.value - at)} />
        ))}
      </DeviceFactList>
      <div class="actions">
        {row.expires_at !== null && (
          <Button
            kind={row.ends_soon ? 'primary' : undefined}
            disabled={isAway.value || extending.isBusy}
            onClick={() => void extend()}
          >
            {t('Extend')}
          </Button>
        )}
        <Button disabled={isAway.value} onClick={setTo(open, 'rename')}>
          {t('Rename')}
        </Button>
        <Button disabled={isAway.value} onClick={setTo(open, 'reduce')}>
          {t('Reduce')}
        </Button>
        <Button kind="danger" icon="trash" disabled={isAway.value} onClick={setTo(open, 'revoke')}>
          {t('Revoke')}
        </Button>
      </div>
      {open.value === 'rename' && <RenameDialog {...dialog} />}
      {open.value === 'revoke' && <RevokeDialog {...dialog} />}
      {open.value === 'reduce' && <ReduceDialog {...dialog} />}
    </article>
  );
}

/** Maximum characters of a name. */
const MAX_NAME = 128;

/** Gives a device the owner's name for it (contract 11 §2). */
function RenameDialog({
  api,
  row,
  isAway,
  onClose,
  onDone,
}: {
  api: Api;
  row: DeviceRow;
  isAway: boolean;
  onClose(): void;
  onDone(): void;
}) {
  const t = useT();
  const name = useSignal(row.device_name);
  const { isBusy, run } = useCall(api);
  const wanted = name.value.trim();

  async function rename(): Promise<void> {
    const request = { method: 'PUT', body: { name: wanted } } as const;
    if (!(await run(`sessions/${row.token_prefix}/name`, request, t('Renamed {name}.', { name: wanted })))) return;
    onClose();
    onDone();
  }

  return (
    <Dialog
      title={t('Rename {name}', { name: row.device_name })}
      isAway={isAway}
      onClose={onClose}
      onSubmit={() => void rename()}
      submit={t('Save')}
      isBlocked={isBusy || wanted === '' || wanted === row.device_name}
    >
      <TextField
        label={t('Name')}
        hint={t('Shown in every list, whatever the device calls itself.')}
        of={name}
        maxLength={MAX_NAME}
        autocomplete="off"
      />
    </Dialog>
  );
}

/** A device counts as connected only with a sign of life in the last 45 s, and never while the relay is away. */
function StateChip({ liveness: { state, age } }: { liveness: Liveness }) {
  const t = useT();
  const { isAway } = useConsole();
  const time = ageText(age * 1000, t);
  if (state === 'offline') return <Chip>{t('Offline for {age}', { age: time })}</Chip>;
  if (isAway.value) return <Chip>{t('Not known')}</Chip>;
  if (state === 'stale') return <Chip tone="warn">{t('No sign of life for {age}', { age: time })}</Chip>;
  return <Chip tone="good">{t('Connected for {age}', { age: time })}</Chip>;
}

const ROUTES: Readonly<Record<ConnectionRow['route'], string>> = {
  direct: 'Direct',
  secure_link: 'Secure Link',
  reach: 'Reach',
  ingress: 'Dashboard',
  edge: 'Edge',
};

function Connection({ row, elapsed }: { row: ConnectionRow; elapsed: number }) {
  const t = useT();
  const { terminal, bridge, proactive, tui, chat, desktop } = row.channels;
  const uses = [
    terminal?.shells ? t('shells: {n}', { n: terminal.shells }) : '',
    bridge?.in_flight ? t('commands under way: {n}', { n: bridge.in_flight }) : '',
    chat?.streams ? t('chats: {n}', { n: chat.streams }) : '',
    tui?.attached ? t("the agent's screen") : '',
    desktop?.tools.length ? t('tools: {n}', { n: desktop.tools.length }) : '',
    proactive?.subscribed ? t('gets messages') : '',
  ].filter(Boolean);
  const facts = [
    t('heard {age} ago', { age: ageText(row.proof_age_ms + elapsed, t) }),
    row.rtt_ms === null ? '' : t('round trip {n} ms', { n: Math.round(row.rtt_ms) }),
    ...uses,
  ].filter(Boolean);
  return (
    <>
      <dt>{t(ROUTES[row.route] ?? row.route)}</dt>
      <dd>{facts.join(' · ')}</dd>
    </>
  );
}
