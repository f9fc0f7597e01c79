import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useRef } from 'preact/hooks';
import { ageText, useNow } from '../../shared/ages.ts';
import { Button, Chip, Choice, Empty, Notice, SwitchRow } from '../../shared/components.tsx';
import { DeviceFactList, type DeviceFacts, ReduceDialog, RevokeDialog } from '../../shared/devices.tsx';
import { useT } from '../../shared/i18n.ts';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { Panes, useWide } from '../../shared/panes.tsx';
import { hrefOf, useRouter } from '../../shared/router.ts';
import { useApp } from '../context.ts';
import { createDeviceNames, type OwnName } from '../devices/names.ts';
import { RenameDialog } from '../devices/rename.tsx';
import { useFlag } from '../flag.ts';
import { SearchField } from '../search-field.tsx';

/** A row of `GET /sessions` (contract 01 §6.1). */
interface SessionRow extends DeviceFacts {
  device_id: string;
  /** Epoch seconds. */
  last_seen: number;
  is_current: boolean;
}

/** A row with its owner's name for it. */
interface NamedRow extends SessionRow {
  own: OwnName;
  /** The device's own name. */
  sent: string;
}

/** Seconds since a device was last seen within which it does not count as away. */
const RECENT = 60;
/** Number of devices from which a search is shown. */
const MANY = 4;

const ORDERS = {
  seen: (a: NamedRow, b: NamedRow) => b.last_seen - a.last_seen,
  name: (a: NamedRow, b: NamedRow) => a.device_name.localeCompare(b.device_name),
  end: (a: NamedRow, b: NamedRow) => (a.expires_at ?? Infinity) - (b.expires_at ?? Infinity),
} as const;

type Order = keyof typeof ORDERS;

/** The devices paired with the relay, this one first. */
export default function Devices() {
  const t = useT();
  const app = useApp();
  const { api, session } = app;
  const names = app.retained(createDeviceNames).names.value;
  const isOnline = session.isOnline.value;
  const { state, reload } = useLoad(
    async (signal) => (await api.call<{ sessions: SessionRow[] }>('sessions', { signal })).sessions,
    [isOnline],
  );
  const named = (row: SessionRow): NamedRow => {
    const own = names[row.device_id] ?? { name: '', person: '' };
    return { ...row, own, sent: row.device_name, device_name: own.name || row.device_name };
  };
  return (
    <LoadedView state={state} reload={reload}>
      {(rows) => (
        <Shown
          rows={rows.map(named)}
          reload={reload}
          notice={
            <>
              <div class="row apart">
                <p class="grow soft small">{t('Every device that may use this relay, and what it may do.')}</p>
                <Button icon="refresh" label={t('Refresh')} onClick={reload} />
              </div>
              {state.value.error !== undefined && <Notice tone="warn">{t(state.value.error)}</Notice>}
            </>
          }
        />
      )}
    </LoadedView>
  );
}

interface ShownProps {
  rows: readonly NamedRow[];
  notice: ComponentChildren;
  reload(): void;
}

function Shown({ rows, notice, reload }: ShownProps) {
  const t = useT();
  const isWide = useWide();
  const query = useSignal('');
  const order = useSignal<Order>('seen');
  const byPerson = useFlag();
  // The search stays when there are fewer: it may still hide devices, and its user may be typing.
  const hasSearch = useRef(false);
  hasSearch.current ||= rows.length >= MANY;
  // Here, not in the device, whose element is replaced when the page gets wider, as when a tablet is turned.
  const asked = useSignal<Asked | undefined>(undefined);
  const { argument } = useRouter().place.value;
  const wanted = query.value.trim().toLocaleLowerCase();
  const found = rows
    .filter((row) =>
      [row.device_name, row.sent, row.own.person, row.token_prefix, row.device_platform, row.device_model].some(
        (text) => text.toLocaleLowerCase().includes(wanted),
      ),
    )
    .toSorted((a, b) => Number(b.is_current) - Number(a.is_current) || ORDERS[order.value](a, b));
  const persons = [...new Set(rows.map(({ own }) => own.person).filter((person) => person !== ''))].sort();
  const groups = byPerson.isOn ? [...persons, ''] : [null];
  const open = rows.find(({ token_prefix }) => token_prefix === argument) ?? found[0];
  const onAsk = (row: NamedRow, dialog: DialogName) => {
    asked.value = { row, dialog };
  };
  const subject = asked.value && presentRow(rows, asked.value.row);
  const list = (
    <div class="screen">
      {notice}
      {hasSearch.current && (
        <>
          <SearchField of={query} label={t('Search devices')} />
          <Choice
            label={t('Order')}
            value={order.value}
            options={[
              ['seen', t('Seen last')],
              ['name', t('Name')],
              ['end', t('End of the session')],
            ]}
            onChange={(value) => {
              order.value = value as Order;
            }}
          />
          <SwitchRow label={t('By person')} checked={byPerson.isOn} onChange={byPerson.set} />
        </>
      )}
      {found.length === 0 && <Empty icon="devices">{t('No device matches.')}</Empty>}
      {groups.map((person) => {
        const members = person === null ? found : found.filter(({ own }) => own.person === person);
        if (members.length === 0) return null;
        const items = members.map((row) => (
          <li key={row.token_prefix}>
            {isWide ? <DeviceLink row={row} isOpen={row === open} /> : <Device row={row} onAsk={onAsk} />}
          </li>
        ));
        return (
          <section key={person} class="block" aria-label={person || t('Devices')}>
            {person !== null && <h2>{person || t('Nobody named')}</h2>}
            <ul class={isWide ? 'list' : 'stack'}>{items}</ul>
          </section>
        );
      })}
    </div>
  );
  return (
    <>
      <Panes isWide={isWide} list={list}>
        {isWide && <div class="screen">{open && <Device key={open.token_prefix} row={open} onAsk={onAsk} />}</div>}
      </Panes>
      {subject && asked.value && (
        <DeviceDialog
          name={asked.value.dialog}
          row={subject}
          persons={persons}
          reload={reload}
          onClose={() => {
            asked.value = undefined;
          }}
        />
      )}
    </>
  );
}

const DeviceLink = ({ row, isOpen }: { row: NamedRow; isOpen: boolean }) => (
  <a class="item" href={hrefOf('devices', row.token_prefix)} aria-current={isOpen ? 'true' : undefined}>
    <span class="text">
      <b class="cut">{row.device_name}</b>
      <Seen row={row} />
    </span>
  </a>
);

type DialogName = 'rename' | 'reduce' | 'revoke';

/** A dialog about a device on the screen. */
interface Asked {
  row: NamedRow;
  dialog: DialogName;
}

/** The row of the same device. The mailbox has another prefix for it than home, and so has a renewed session. */
function presentRow(rows: readonly NamedRow[], { token_prefix, device_id }: NamedRow): NamedRow | undefined {
  const [row, second] = rows.filter((other) => other.device_id === device_id);
  // Devices may have sent no id.
  return rows.find((other) => other.token_prefix === token_prefix) ?? (second ? undefined : row);
}

function Device({ row, onAsk }: { row: NamedRow; onAsk(row: NamedRow, dialog: DialogName): void }) {
  const t = useT();
  const isAway = !useApp().session.isOnline.value;
  return (
    <article class="card" aria-label={row.device_name}>
      <div class="row apart">
        <h2>{row.device_name}</h2>
        <Seen row={row} />
      </div>
      <DeviceFactList row={row}>
        {row.own.person !== '' && (
          <>
            <dt>{t('Person')}</dt>
            <dd>{row.own.person}</dd>
          </>
        )}
        {row.own.name !== '' && (
          <>
            <dt>{t('Calls itself')}</dt>
            <dd>{row.sent}</dd>
          </>
        )}
      </DeviceFactList>
      <div class="actions">
        <Button disabled={isAway && row.is_current} onClick={() => onAsk(row, 'rename')}>
          {t('Rename')}
        </Button>
        {row.is_current && (
          <Button disabled={isAway} onClick={() => onAsk(row, 'reduce')}>
            {t('Reduce')}
          </Button>
        )}
        <Button
          kind="danger"
          icon={row.is_current ? 'lock' : 'trash'}
          disabled={isAway}
          onClick={() => onAsk(row, 'revoke')}
        >
          {row.is_current ? t('Sign out') : t('Revoke')}
        </Button>
      </div>
    </article>
  );
}

interface DeviceDialogProps {
  name: DialogName;
  row: NamedRow;
  persons: readonly string[];
  reload(): void;
  onClose(): void;
}

function DeviceDialog({ name, row, persons, reload, onClose }: DeviceDialogProps) {
  const app = useApp();
  const { api, session, settings } = app;
  const { set } = app.retained(createDeviceNames);
  const dialog = { api, row, onClose };

  function rename(own: OwnName): void {
    if (!row.is_current) return void set(row.device_id, own);
    void set(row.device_id, { ...own, name: '' });
    // The relay gets the name with the next connection.
    settings.set('device_name', own.name.trim());
    session.reconnect();
  }

  switch (name) {
    case 'rename':
      return (
        <RenameDialog
          device={row.sent}
          own={row.is_current ? { ...row.own, name: settings.values.device_name.value } : row.own}
          isCurrent={row.is_current}
          persons={persons}
          onClose={onClose}
          onSave={rename}
        />
      );
    case 'reduce':
      return (
        <ReduceDialog
          {...dialog}
          onDone={() => {
            reload();
            // The relay reports this session's remaining rights when it connects.
            session.reconnect();
          }}
        />
      );
    case 'revoke':
      return (
        <RevokeDialog {...dialog} own={row.is_current} onDone={row.is_current ? () => void session.forget() : reload} />
      );
  }
}

/** The list does not contain who is connected, only when the relay last saw a device. */
function Seen({ row }: { row: SessionRow }) {
  const t = useT();
  const now = useNow();
  if (row.is_current) return <Chip>{t('This device')}</Chip>;
  const age = now.value - row.last_seen * 1000;
  if (age < RECENT * 1000) return <Chip>{t('Seen just now')}</Chip>;
  return <Chip>{t('Seen {age} ago', { age: ageText(age, t) })}</Chip>;
}
