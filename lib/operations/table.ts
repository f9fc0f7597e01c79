import type { Clock } from '../kit/clock.ts';
import type { PhoneMessaging } from '../phone/phone.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { androidOperations, type PhoneControl } from './android.ts';
import { createCaller, mayCall } from './call.ts';
import { type DesktopControl, desktopOperations } from './desktop.ts';
import { type DeviceListParts, deviceList } from './devices.ts';
import type { Gate } from './gate.ts';
import type { Operation, OperationRow } from './operation.ts';
import { phoneOperations } from './phone.ts';

export interface OperationParts {
  phone: PhoneMessaging;
  bridge: PhoneControl & DeviceListParts['bridge'];
  desktop: DesktopControl;
  sessions: Sessions;
  sockets: DeviceListParts['sockets'];
  gate: Gate;
  clock: Clock;
}

export type Operations = ReturnType<typeof createOperations>;

/** THE table of operations: what may be done through more than one door (contract 09 §9). */
export function createOperations(parts: OperationParts) {
  const { gate, clock } = parts;
  const fixed = new Map(
    [...phoneOperations(parts), deviceList(parts), ...androidOperations(parts.bridge)].map((one) => [one.name, one]),
  );
  const desktop = desktopOperations(parts);

  return {
    /** The operations to offer to a session now, by its grants, the connected devices, and the freeze. */
    list(session: Session): Operation[] {
      const isFrozen = gate.state() !== undefined;
      return [...fixed.values(), ...desktop.list()].filter(
        (operation) =>
          mayCall(operation, { kind: 'session', session }, clock) &&
          (!isFrozen || operation.ignoresFreeze === true) &&
          operation.isAvailable?.(session) !== false,
      );
    },

    /** The rows that every relay has, whatever is connected. */
    rows: (): readonly OperationRow[] => [...fixed.values()],

    /** An operation by its name, offered or not: its call says why it cannot be carried out. */
    get: (name: string): Operation | undefined => fixed.get(name) ?? desktop.get(name),

    /** Carries out an operation: see `createCaller`. */
    call: createCaller({ gate, clock }),
  };
}
