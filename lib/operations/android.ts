import type { HangUp } from '../kit/event.ts';
import type { JsonObject } from '../kit/json.ts';
import type { Session } from '../sessions/session.ts';
import type { JsonText } from '../web/json.ts';
import type { Actor } from './actor.ts';
import { DEVICE_ROWS, type DeviceRow } from './device.ts';
import type { Operation } from './operation.ts';

/** Lowest status of a phone's answer that is a refusal or a failure. */
const FAILED = 400;

/** A call (contract 03 §4.1). */
export interface PhoneCall {
  route: DeviceRow;
  /** The query, one value for each name. */
  query: Readonly<Record<string, string>>;
  /** The body of a POST: its text, which goes to the phone unchanged, and its parsed value. */
  body?: Readonly<JsonText>;
  /** Aborts when the caller disconnects. */
  signal?: HangUp;
  actor: Actor;
}

/** The part of the bridge that operations use. */
export interface PhoneControl {
  /** True if a connected phone can serve a call of this row. */
  isOffered(row: DeviceRow): boolean;
  /** True if a session belongs to a connected phone. */
  hasPhone(session: Session): boolean;
  command(call: PhoneCall): Promise<{ status: number; body: string }>;
}

/** Device Control as operations: the rows of the routes, without duplicates (contract 09 §7). */
export const androidOperations = (bridge: PhoneControl): Operation[] =>
  DEVICE_ROWS.filter(({ isAlias }) => !isAlias).map((row) => operationOf(row, bridge));

function operationOf(row: DeviceRow, bridge: PhoneControl): Operation {
  const operation: Operation<JsonObject> = {
    ...row,
    isGated: true,
    isAvailable: () => bridge.isOffered(row),
    async run({ device, ...args }, { actor, signal }) {
      const selector: Record<string, string> = typeof device === 'string' ? { device } : {};
      const isGet = row.method === 'GET';
      const { status, body } = await bridge.command({
        route: row,
        query: isGet ? { ...textsOf(args), ...selector } : selector,
        body: isGet ? undefined : { text: JSON.stringify(args), value: args },
        signal,
        actor,
      });
      return status < FAILED ? { json: body } : { json: body, failed: true };
    },
  };
  return operation as Operation;
}

/** Arguments in the form of a query. */
const textsOf = (args: JsonObject): Record<string, string> =>
  Object.fromEntries(
    Object.entries(args).flatMap(([key, value]) => (value === undefined ? [] : [[key, String(value)]])),
  );
