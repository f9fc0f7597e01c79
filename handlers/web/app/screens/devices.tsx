import { useSignal } from '@preact/signals';
import { ageText, useNow } from '../../shared/ages.ts';
import { Button, Chip, Notice } from '../../shared/components.tsx';
import { DeviceFactList, type DeviceFacts, ReduceDialog, RevokeDialog } from '../../shared/devices.tsx';
import { useT } from '../../shared/i18n.ts';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { useApp } from '../context.ts';

/** A row of `GET /sessions` (contract 01 §6.1). */
interface SessionRow extends DeviceFacts {
  /** Epoch seconds. */
  last_seen: number;
  is_current: boolean;
}

/** A device that was seen this many seconds ago is not called away. */
const RECENT = 60;

/** The devices that are paired with the relay, this one first. */
export default function Devices() {
  const t = useT();
  const { api, session } = useApp();
  const isOnline = session.isOnline.value;
  const { state, reload } = useLoad(
    async (signal) => (await api.call<{ sessions: SessionRow[] }>('sessions', { signal })).sessions,
    [isOnline],
  );
  return (
    <div class="screen">
      <div class="row apart">
        <p class="grow soft small">{t('Every device that may use this relay, and what it may do.')}</p>
        <Button icon="refresh" label={t('Refresh')} onClick={reload} />
      </div>
      <LoadedView state={state} reload={reload}>
        {(rows) => (
          <>
            {state.value.error !== undefined && <Notice tone="warn">{t(state.value.error)}</Notice>}
            <ul class="stack">
              {rows
                .toSorted((a, b) => Number(b.is_current) - Number(a.is_current))
                .map((row) => (
                  <li key={row.token_prefix}>
                    <Device row={row} reload={reload} />
                  </li>
                ))}
            </ul>
          </>
        )}
      </LoadedView>
    </div>
  );
}

function Device({ row, reload }: { row: SessionRow; reload(): void }) {
  const t = useT();
  const { api, session } = useApp();
  const open = useSignal<'reduce' | 'revoke' | undefined>(undefined);
  const isAway = !session.isOnline.value;
  const dialog = {
    api,
    row,
    onClose: () => {
      open.value = undefined;
    },
  };
  return (
    <article class="card" aria-label={row.device_name}>
      <div class="row apart">
        <h2>{row.device_name}</h2>
        {row.is_current ? <Chip>{t('This device')}</Chip> : <Seen row={row} />}
      </div>
      <DeviceFactList row={row} />
      <div class="actions">
        {row.is_current && (
          <Button
            disabled={isAway}
            onClick={() => {
              open.value = 'reduce';
            }}
          >
            {t('Reduce')}
          </Button>
        )}
        <Button
          kind="danger"
          icon={row.is_current ? 'lock' : 'trash'}
          disabled={isAway}
          onClick={() => {
            open.value = 'revoke';
          }}
        >
          {row.is_current ? t('Sign out') : t('Revoke')}
        </Button>
      </div>
      {open.value === 'reduce' && (
        <ReduceDialog
          {...dialog}
          onDone={() => {
            reload();
            // The relay tells what this session still may do when it connects.
            session.reconnect();
          }}
        />
      )}
      {open.value === 'revoke' && (
        <RevokeDialog {...dialog} own={row.is_current} onDone={row.is_current ? () => void session.forget() : reload} />
      )}
    </article>
  );
}

/** The list does not say who is connected, only when the relay last heard of a device. */
function Seen({ row }: { row: SessionRow }) {
  const t = useT();
  const now = useNow();
  const age = now.value - row.last_seen * 1000;
  if (age < RECENT * 1000) return <Chip>{t('Seen just now')}</Chip>;
  return <Chip>{t('Seen {age} ago', { age: ageText(age, t) })}</Chip>;
}
