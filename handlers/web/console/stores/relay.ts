import { type ReadonlySignal, signal } from '@preact/signals';
import type { Clock } from '../../../../lib/kit/clock.ts';
import { parseJson } from '../../../../lib/kit/json.ts';
import { readFreeze } from '../../../../lib/operations/freeze-state.ts';
import type { Api } from '../../shared/api.ts';
import type {
  Activity,
  BridgeDevices,
  DesktopCommand,
  DeviceRow,
  DoctorReport,
  EndedRow,
  Health,
  HistoryItem,
  Info,
  LogLine,
  MediaRow,
  MirrorAnswer,
  Outbound,
  PairingRoutes,
  Pending,
  PhoneCommand,
  Security,
  Update,
} from './answers.ts';
import { createFeed, isRefusal } from './feed.ts';
import { createResource, type Resource } from './resource.ts';
import { createTail } from './tail.ts';

const MAX_ACTIVITY = 200;
const MAX_LINES = 500;
const MAX_HISTORY = 200;

/** Identifies a log line, which has no id. */
export const keyOfLine = ({ ts, name, text }: LogLine): string => `${ts} ${name} ${text}`;

export type RelayStore = ReturnType<typeof createRelayStore>;

/** State of the relay in the console, read when a screen first watches it, and again after events. */
export function createRelayStore({ api: caller, clock }: { api: Api; clock: Clock }) {
  const refusal = signal<string | undefined>(undefined);
  /** Counts the credentials that the page has had. */
  let era = 0;
  /** A call refused with former credentials is repeated, since its refusal does not concern the present ones. */
  const call: Api['call'] = async (...request) => {
    const began = era;
    try {
      return await caller.call(...request);
    } catch (error) {
      if (isRefusal(error) && began !== era) return call(...request);
      throw error;
    }
  };
  const api: Api = { ...caller, call };
  const onError = (error: unknown): void => {
    if (isRefusal(error)) refusal.value = error.message;
  };
  const now = clock.now;
  const resource = <T>(path: string, pick: (answer: never) => T = (answer) => answer): Resource<T> =>
    createResource({ load: async () => pick((await api.call(path)) as never), onError, now, clock });

  const all = {
    health: resource<Health>('health'),
    info: resource<Info>('relay/info'),
    mirror: resource<MirrorAnswer>('relay/mirror'),
    freeze: resource('relay/info', ({ freeze }: Info) => readFreeze(freeze)),
    devices: resource('relay/devices', ({ devices }: { devices: DeviceRow[] }) => devices),
    ended: resource('sessions/ended', ({ sessions }: { sessions: EndedRow[] }) => sessions),
    pending: resource<Pending>('pairing/pending'),
    routes: resource<PairingRoutes>('pairing/routes'),
    bridges: resource<BridgeDevices>('bridge/devices'),
    outbound: resource<Outbound>('phone/outbound'),
    history: resource(`phone/history?limit=${MAX_HISTORY}`, ({ items }: { items: HistoryItem[] }) => items),
    media: resource('media/inspect', ({ media }: { media: MediaRow[] }) => media),
    security: resource<Security>('relay/security'),
    update: resource<Update>('relay/update-check'),
    activity: createTail<Activity>({
      async load() {
        const of = async <T>(room: string): Promise<T[]> =>
          (await api.call<{ activity: T[] }>(`${room}/activity?limit=${MAX_ACTIVITY}`)).activity;
        const [phones, desktops] = await Promise.all([of<PhoneCommand>('bridge'), of<DesktopCommand>('desktop')]);
        // The relay lists the newest first.
        const all = [...phones.map(ofPhone), ...desktops.map(ofDesktop)].toReversed();
        return all.sort((one, other) => one.sent_at - other.sent_at);
      },
      keyOf: ({ request_id: id }) => id,
      inPlace: true,
      max: MAX_ACTIVITY,
      clock,
      onError,
    }),
    log: createTail<LogLine>({
      load: async () => (await api.call<{ lines: LogLine[] }>(`relay/log?limit=${MAX_LINES}`)).lines,
      keyOf: keyOfLine,
      max: MAX_LINES,
      clock,
      onError,
    }),
  };

  /** Resources that each event of the relay makes stale. `reset` may stand for any of them. */
  const affected: Record<string, readonly Resource<unknown>[]> = {
    device: [all.devices, all.ended, all.health, all.bridges],
    queue: [all.outbound, all.history],
    media: [all.media],
    pairing: [all.pending, all.devices],
    security: [all.security],
    freeze: [all.freeze],
    reset: Object.values<Resource<unknown>>(all),
  };

  const feed = createFeed({
    api,
    clock,
    onEvent(event, data) {
      if (event === 'bridge') addTo<PhoneCommand>(data, (record) => all.activity.add(ofPhone(record)));
      else if (event === 'desktop') addTo<DesktopCommand>(data, (record) => all.activity.add(ofDesktop(record)));
      else if (event === 'log') addTo<LogLine>(data, all.log.add);
      else for (const one of affected[event] ?? []) one.invalidate();
    },
  });

  return {
    ...all,
    feed,
    doctor: createDoctor(api, onError),
    /** Why the relay did not accept a call as its operator's; undefined while it does. */
    refusal: refusal as ReadonlySignal<string | undefined>,
    /** Starts again, with other credentials. */
    restart(): void {
      era++;
      refusal.value = undefined;
      feed.stop();
      feed.start();
    },
  };
}

const ofPhone = ({ method, path, ...rest }: PhoneCommand): Activity => ({ ...rest, what: `${method} ${path}` });

const ofDesktop = ({ tool, args, ...rest }: DesktopCommand): Activity => ({ ...rest, what: tool, params: args });

function addTo<T>(data: string, add: (item: T) => void): void {
  const item = parseJson(data);
  if (item !== undefined) add(item as T);
}

export interface DoctorState {
  isRunning: boolean;
  report?: DoctorReport;
  /** Epoch milliseconds of the report. */
  at?: number;
  error?: string;
  /** True if the relay runs without a host that could be examined (edge). */
  isAbsent?: boolean;
}

function createDoctor(api: Api, onError: (error: unknown) => void) {
  const state = signal<DoctorState>({ isRunning: false });
  return {
    state: state as ReadonlySignal<DoctorState>,
    /** Runs the doctor, unless it runs already. Never rejects. */
    async run(): Promise<void> {
      if (state.value.isRunning) return;
      state.value = { ...state.value, isRunning: true, error: undefined };
      try {
        const report = await api.call<DoctorReport>('relay/doctor', { method: 'POST' });
        state.value = { isRunning: false, report, at: Date.now() };
      } catch (error) {
        onError(error);
        const isAbsent = (error as { status?: number }).status === 501;
        state.value = {
          ...state.value,
          isRunning: false,
          isAbsent,
          error: isAbsent ? undefined : (error as Error).message,
        };
      }
    },
  };
}
