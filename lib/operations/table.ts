import type { Clock } from '../kit/clock.ts';
import type { PhoneMessaging } from '../phone/phone.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { androidOperations, type PhoneControl } from './android.ts';
import { type CallDeps, createCaller, mayCall } from './call.ts';
import { type DesktopControl, desktopOperations } from './desktop.ts';
import { type DeviceListDeps, deviceList } from './devices.ts';
import type { Gate } from './gate.ts';
import type { Operation, OperationRow } from './operation.ts';
import { phoneOperations } from './phone.ts';

export interface OperationDeps {
  phone: PhoneMessaging;
  bridge: PhoneControl;
  desktop: DesktopControl;
  sessions: Sessions;
  sockets: DeviceListDeps['sockets'];
  gate: Gate;
  clock: Clock;
  homeRefusal?: CallDeps['homeRefusal'];
}

export type Operations = ReturnType<typeof createOperations>;

/** THE table of operations, which can be reached through more than one door (contract 09 §9). */
export function createOperations(deps: OperationDeps) {
  const { gate, clock, homeRefusal } = deps;
  const fixed = new Map(
    [...phoneOperations(deps), deviceList(deps), ...androidOperations(deps.bridge)].map((one) => [one.name, one]),
  );
  const desktop = desktopOperations(deps);

  return {
    /** The operations to offer to a session now, given its grants, the connected devices and the freeze. */
    list(session: Session): Operation[] {
      const isFrozen = gate.state() !== undefined;
      return [...fixed.values(), ...desktop.list()].filter(
        (operation) =>
          mayCall(operation, { kind: 'session', session }, clock) &&
          (!isFrozen || operation.ignoresFreeze === true) &&
          operation.isAvailable?.(session) !== false,
      );
    },

    /** The rows that do not depend on connected devices. */
    rows: (): readonly OperationRow[] => [...fixed.values()],

    /** An operation by its name, available or not: its call says why it is unavailable. */
    get: (name: string): Operation | undefined => fixed.get(name) ?? desktop.get(name),

    /** Carries out an operation: see `createCaller`. */
    call: createCaller({ gate, clock, homeRefusal }),
  };
}
