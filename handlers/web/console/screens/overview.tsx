import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { livenessOf } from '../../../../lib/operator/device-state.ts';
import { readGoneAddresses } from '../../../../lib/operator/gone-addresses.ts';
import { ageText, timeText, useNow } from '../../shared/ages.ts';
import { Button, Chip, Notice, type Tone } from '../../shared/components.tsx';
import { useI18n, useT } from '../../shared/i18n.ts';
import { hrefOf } from '../../shared/router.ts';
import { useConsole } from '../context.ts';
import { ResourceView, useRefresh } from '../parts.tsx';
import type { DeviceRow, DoctorReport, Finding, Health, Info, MirrorAnswer } from '../stores/answers.ts';

/** Milliseconds between updates of values that no event reports. */
const PERIOD = 15_000;

/** The state of the relay at a glance. */
export default function Overview() {
  const t = useT();
  const { relay } = useConsole();
  useRefresh(relay.health, PERIOD);
  useRefresh(relay.info, PERIOD);
  useRefresh(relay.devices, PERIOD);
  useRefresh(relay.mirror, PERIOD);
  return (
    <div class="screen">
      <div class="cards">
        <Card title={t('Relay')}>
          <ResourceView of={relay.health}>{(health) => <Readiness health={health} />}</ResourceView>
          <ResourceView of={relay.info}>{(info, at) => <RelayFacts info={info} at={at} />}</ResourceView>
          <ResourceView of={relay.mirror}>{(mirror) => <MirrorState mirror={mirror} />}</ResourceView>
        </Card>
        <Card title={t('Devices')}>
          <ResourceView of={relay.devices}>{(rows, at) => <DeviceCounts rows={rows} at={at} />}</ResourceView>
          <ResourceView of={relay.info}>{(info) => <GoneAddresses info={info} />}</ResourceView>
        </Card>
        <Card title={t('Waiting')}>
          <Waiting />
        </Card>
      </div>
      <Doctor />
    </div>
  );
}

const Card = ({ title, children }: { title: string; children: ComponentChildren }) => (
  <section class="card" aria-label={title}>
    <h2>{title}</h2>
    {children}
  </section>
);

function Readiness({ health }: { health: Health }) {
  const t = useT();
  const { isAway } = useConsole();
  const { readiness, secure_link: link } = health;
  const store = readiness.checks.session_store;
  return (
    <>
      <p class="row">
        <Chip tone={isAway.value ? undefined : readiness.ready ? 'good' : 'warn'}>
          {readiness.ready ? t('Ready') : t(readiness.state === 'stopping' ? 'Stopping' : 'Starting')}
        </Chip>
        {link.enabled && (
          <Chip tone={link.status === 'available' ? undefined : 'warn'}>
            {t(link.status === 'available' ? 'Secure Link on' : 'Secure Link does not work')}
          </Chip>
        )}
        {link.reach.enabled && (
          <Chip tone={link.reach.connected ? undefined : 'warn'}>
            {t(link.reach.connected ? 'Reach connected' : 'Reach not connected')}
          </Chip>
        )}
      </p>
      {link.enabled && link.reason !== undefined && <p class="small wrap">{link.reason}</p>}
      {link.reach.enabled && !link.reach.connected && link.reach.last_error && (
        <p class="small wrap">{link.reach.last_error}</p>
      )}
      {store === 'memory' && <Notice tone="warn">{t('Pairings are kept in memory: they end with the relay.')}</Notice>}
      {store === 'degraded' && (
        <Notice tone="bad">{t('Pairings could not be saved. Look at the disk, then at the log.')}</Notice>
      )}
    </>
  );
}

function RelayFacts({ info, at }: { info: Info; at: number }) {
  const t = useT();
  const now = useNow(PERIOD);
  const { api } = useConsole();
  const { gateway_heartbeat: heartbeat } = info;
  return (
    <dl class="facts">
      <dt>{t('Version')}</dt>
      <dd>{info.version}</dd>
      <dt>{t('Running for')}</dt>
      <dd>{ageText(info.uptime_seconds * 1000 + Math.max(0, now.value - at), t)}</dd>
      <dt>{t('Address')}</dt>
      <dd>{new URL(api.base).host}</dd>
      {heartbeat.supported && (
        <>
          <dt>{t('Agent')}</dt>
          <dd>{t(heartbeat.status === 'fresh' ? 'Running' : 'No sign of life')}</dd>
        </>
      )}
    </dl>
  );
}

/** The mirror of home at the edge (contract 12 §1), as seen by either side. */
function MirrorState({ mirror: { enabled, url, link, since, waiting } }: { mirror: MirrorAnswer }) {
  const { t, language } = useI18n();
  if (!enabled) return null;
  const time = since === null ? '' : timeText(since * 1000, language);
  const cut = t(url === null ? 'Off since {time}' : 'Not linked since {time}', { time });
  return (
    <dl class="facts">
      <dt>{t(url === null ? 'Agent’s machine' : 'Edge')}</dt>
      <dd>
        {link === 'up' ? t('Linked') : cut}
        {waiting.out > 0 && <> · {t('Waiting: {n}', { n: waiting.out })}</>}
      </dd>
    </dl>
  );
}

function DeviceCounts({ rows, at }: { rows: readonly DeviceRow[]; at: number }) {
  const t = useT();
  const now = useNow();
  const { isAway } = useConsole();
  if (rows.length === 0) {
    return (
      <>
        <p>{t('No device is paired.')}</p>
        <p>
          <a class="link" href={hrefOf('pair')}>
            {t('Pair a device')}
          </a>
        </p>
      </>
    );
  }
  const states = rows.map((row) => livenessOf({ ...row }, now.value / 1000, now.value - at).state);
  const count = (state: string) => states.filter((one) => one === state).length;
  const chips: [string, string, Tone | undefined][] = [
    ['connected', '{n} connected', 'good'],
    ['stale', '{n} without a sign of life', 'warn'],
    ['offline', '{n} offline', undefined],
  ];
  return (
    <>
      <p class="row">
        {chips
          .filter(([state]) => count(state) > 0)
          .map(([state, text, tone]) => (
            <Chip key={state} tone={isAway.value ? undefined : tone}>
              {t(text, { n: count(state) })}
            </Chip>
          ))}
      </p>
      <p>
        <a class="link" href={hrefOf('devices')}>
          {t('Show devices')}
        </a>
      </p>
    </>
  );
}

/** Devices that cannot return by themselves, because the address that they know is gone. */
function GoneAddresses({ info }: { info: Info }) {
  const t = useT();
  return readGoneAddresses(info).map(({ urls, devices }) => (
    <Notice key={urls.join()} tone="warn">
      {t('This machine no longer has the address {address}. These devices know no other: {names}. Pair them again.', {
        address: urls.join(', '),
        names: devices.join(', '),
      })}
    </Notice>
  ));
}

function Waiting() {
  const t = useT();
  const { relay } = useConsole();
  return (
    <ul class="lines">
      <li>
        <ResourceView of={relay.pending}>
          {({ requests }) => (
            <a class="link" href={hrefOf('pair')}>
              {t('Requests to pair: {n}', { n: requests.length })}
            </a>
          )}
        </ResourceView>
      </li>
      <li>
        <ResourceView of={relay.outbound}>
          {({ queued }) => (
            <a class="link" href={hrefOf('messages')}>
              {t('Messages for the phone: {n}', { n: queued })}
            </a>
          )}
        </ResourceView>
      </li>
    </ul>
  );
}

const TONES = { error: 'bad', warn: 'warn', ok: 'good' } as const;
const WORDS = { error: 'Error', warn: 'Warning', ok: 'Fine' } as const;

/** Findings of `svc relay doctor`. Runs when the page first shows it, then on demand. */
function Doctor() {
  const { t, language } = useI18n();
  const { relay, isAway } = useConsole();
  const { doctor, feed } = relay;
  const { isRunning, report, at, error, isAbsent } = doctor.state.value;
  const isLive = feed.state.value.kind === 'live';
  useEffect(() => {
    const { report, error, isAbsent } = doctor.state.peek();
    if (isLive && !report && error === undefined && !isAbsent) void doctor.run();
  }, [isLive]);
  return (
    <section class="card" aria-labelledby="doctor">
      <div class="row apart">
        <h2 id="doctor">{t('Doctor')}</h2>
        {!isAbsent && (
          <Button icon="refresh" disabled={isRunning || isAway.value} onClick={() => void doctor.run()}>
            {isRunning ? t('Examining') : t('Run again')}
          </Button>
        )}
      </div>
      {isAbsent && <p class="soft">{t('This relay runs without a host, so there is nothing to examine.')}</p>}
      {error !== undefined && <Notice tone="bad">{t(error)}</Notice>}
      {at !== undefined && report && (
        <>
          <p class="small soft" role="status">
            {t('As of {time}', { time: timeText(at, language) })}
          </p>
          <Checks report={report} />
        </>
      )}
      {!report && isRunning && <p class="soft">{t('The relay examines its installation, the agent and itself.')}</p>}
    </section>
  );
}

/** Checks that need attention first, then unknown ones, then those that passed. */
function Checks({ report: { groups } }: { report: DoctorReport }) {
  const t = useT();
  const { isAway } = useConsole();
  const findings = groups.flatMap(({ checks }) => checks);
  const known = (status: Finding['status']) => findings.filter((check) => check.status === status && !check.unknown);
  const shown = [...known('error'), ...known('warn'), ...findings.filter(({ unknown }) => unknown)];
  const fine = known('ok');
  const list = (checks: Finding[]) => (
    <ul class="checks">
      {checks.map(({ id, status, summary, next, unknown, covers }) => (
        <li key={id}>
          <Chip tone={isAway.value || unknown ? undefined : TONES[status]}>
            {unknown ? t('Not known') : t(WORDS[status])}
          </Chip>
          <span class="lead">
            <code>{id}</code>
            <span>{summary}</span>
            {next !== undefined && <strong>{next}</strong>}
            {covers && <span class="small soft">{t('Same cause: {list}', { list: covers.join(', ') })}</span>}
          </span>
        </li>
      ))}
    </ul>
  );
  return (
    <>
      {shown.length > 0 && list(shown)}
      <details>
        <summary>{t('Checks that are fine: {n}', { n: fine.length })}</summary>
        {list(fine)}
      </details>
    </>
  );
}
