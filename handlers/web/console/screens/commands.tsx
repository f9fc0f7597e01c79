import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { timeText } from '../../shared/ages.ts';
import { Button, Chip, Empty, type Tone } from '../../shared/components.tsx';
import { RevokeDialog } from '../../shared/devices.tsx';
import { useI18n, useT } from '../../shared/i18n.ts';
import { useConsole } from '../context.ts';
import { ResourceView, restoreFocus, useAction } from '../parts.tsx';
import { setTo } from '../signals.ts';
import type { Activity, ActorRecord, BridgeDevices } from '../stores/answers.ts';

/** The commands of agents to phones and desktops, live. */
export default function Commands() {
  const t = useT();
  const { relay } = useConsole();
  useEffect(() => relay.devices.watch(), [relay]);
  return (
    <div class="screen">
      <ResourceView of={relay.bridges}>{(bridges) => <Phones bridges={bridges} />}</ResourceView>
      <section aria-labelledby="commands">
        <h2 id="commands">{t('Last commands')}</h2>
        <ResourceView of={relay.activity}>
          {(records) =>
            records.length === 0 ? (
              <Empty icon="phone">
                {t('No command has been sent to a device yet. They appear here as they happen.')}
              </Empty>
            ) : (
              <ul class="list">
                {records.toReversed().map((record) => (
                  <li key={record.request_id}>
                    <Command record={record} />
                  </li>
                ))}
              </ul>
            )
          }
        </ResourceView>
      </section>
    </div>
  );
}

/** The phones that accept commands, and the default among them. */
function Phones({ bridges: { devices } }: { bridges: BridgeDevices }) {
  const t = useT();
  const { relay, isAway } = useConsole();
  const { isBusy, run } = useAction();
  if (devices.length === 0) return <p class="soft">{t('No phone accepts commands now.')}</p>;
  return (
    <section aria-labelledby="phones">
      <h2 id="phones">{t('Phones that take commands')}</h2>
      <ul class="list">
        {devices.map(({ device_id: id, device_name: name, active }) => (
          <li key={id} class="item">
            <span class="text">
              <b dir="auto">{name}</b>
              <span class="small soft">{active ? t('Gets commands that name no phone') : id}</span>
            </span>
            {!active && devices.length > 1 && (
              <Button
                disabled={isBusy || isAway.value}
                onClick={async () => {
                  const body = { device_id: id };
                  await run('bridge/select-active', { method: 'POST', body }, t('{name} is the active one.', { name }));
                  void relay.bridges.refresh();
                }}
              >
                {t('Make active')}
              </Button>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

const DECISIONS: Readonly<Record<Activity['decision'], readonly [string, Tone | undefined]>> = {
  pending: ['Under way', undefined],
  executed: ['Done', 'good'],
  confirmed: ['Confirmed by the owner', 'good'],
  blocked: ['Refused', 'warn'],
  timeout: ['No answer', 'bad'],
  error: ['Failed', 'bad'],
  frozen: ['Frozen', 'warn'],
};

function Command({ record }: { record: Activity }) {
  const { t, language } = useI18n();
  const { isAway } = useConsole();
  const { what, params, decision, device_name: device, sent_at: at, response_status: status, actor } = record;
  const [word, tone] = DECISIONS[decision] ?? [decision, undefined];
  const details = Object.keys(params).length > 0 ? JSON.stringify(params) : '';
  const outcome = record.error ?? (record.result_summary === '{}' ? null : record.result_summary);
  return (
    <div class="item wraps">
      <span class="text">
        <span>
          <code>{what}</code>
        </span>
        {details !== '' && <code class="small soft">{details}</code>}
        {outcome && <span class={`small ${record.error ? 'bad' : 'soft'}`}>{outcome}</span>}
        <span class="small soft">
          {[device ?? t('no device'), timeText(at, language), status === null ? '' : String(status)]
            .filter(Boolean)
            .join(' · ')}
        </span>
        {actor && <Actor actor={actor} />}
      </span>
      <Chip tone={isAway.value ? undefined : tone}>{t(word)}</Chip>
      {record.actor?.prefix !== undefined && <RevokeActor actor={record.actor} prefix={record.actor.prefix} />}
    </div>
  );
}

const KINDS: Readonly<Record<string, string>> = {
  session: 'Device',
  mcp: 'MCP',
  voice: 'Voice',
};

/** The sender of a command (contract 09 §9). */
function Actor({ actor: { kind, name } }: { actor: ActorRecord }) {
  const t = useT();
  const text =
    kind === 'operator' ? t('by the operator') : t('by {name} ({kind})', { name, kind: t(KINDS[kind] ?? kind) });
  return <span class="small">{text}</span>;
}

/** Ends the session of a command's sender, while it exists. */
function RevokeActor({ actor: { name }, prefix }: { actor: ActorRecord; prefix: string }) {
  const t = useT();
  const { api, relay, isAway } = useConsole();
  const isOpen = useSignal(false);
  const close = setTo(isOpen, false);
  const isPaired = relay.devices.state.value.value?.some((row) => row.token_prefix === prefix);
  if (!isPaired) return null;
  return (
    <>
      <Button disabled={isAway.value} onClick={setTo(isOpen, true)}>
        {t('Revoke this one')}
      </Button>
      {isOpen.value && (
        <RevokeDialog
          api={api}
          row={{ token_prefix: prefix, device_name: name }}
          isAway={isAway.value}
          onClose={close}
          onDone={() => void relay.devices.refresh().then(restoreFocus)}
        />
      )}
    </>
  );
}
