import type { PhoneLink } from '../../../lib/phone/phone.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import { World } from './world.ts';

type Side = 'home' | 'edge';

interface Connection {
  side: Side;
  link: PhoneLink;
  /** What was written to it and has not arrived. */
  wire: { type: string; payload: Record<string, unknown> }[];
  /** Called once everything sent before has arrived. */
  probes: { answered(): void }[];
  isOpen: boolean;
}

/** A phone that is connected to one side at a time, and shows each message once. */
export class Device {
  /** Every message that it has shown, in order. */
  readonly shown: string[] = [];
  /** Those that came again. */
  readonly repeated: string[] = [];
  readonly closed: string[] = [];
  readonly acknowledged: string[] = [];
  connection: Connection | undefined;
  #count = 0;

  readonly world: World;
  constructor(world: World) {
    this.world = world;
  }

  connect(side: Side): void {
    this.disconnect();
    const id = `socket-${++this.#count}`;
    const own: Connection = { side, wire: [], probes: [], isOpen: true } as unknown as Connection;
    own.link = {
      id,
      session: { prefix: 'p', grants: { phone: null }, device: { name: 'phone' } } as unknown as Session,
      get isWritable() {
        return own.isOpen;
      },
      send: (_channel, type, payload) => {
        if (own.isOpen) own.wire.push({ type, payload });
      },
      probe: (answered) => void own.probes.push({ answered }),
    };
    this.connection = own;
    this.world[side].phone.subscribe(own.link, 's');
  }

  /** What was written and has not arrived is lost. */
  disconnect(): void {
    const own = this.connection;
    this.connection = undefined;
    if (!own) return;
    own.isOpen = false;
    this.world[own.side].phone.ended(own.link);
  }

  /** The relay of its connection has ended with it. */
  lost(side: Side): void {
    if (this.connection?.side !== side) return;
    this.connection.isOpen = false;
    this.connection = undefined;
  }

  /** One frame arrives. With the last one, the phone answers the pings before it. */
  receive(): void {
    const own = this.connection;
    const frame = own?.wire.shift();
    if (!own) return;
    const id = String(frame?.payload.message_id);
    if (frame?.type === 'phone.message') (this.shown.includes(id) ? this.repeated : this.shown).push(id);
    if (frame?.type === 'phone.message.cancelled') this.closed.push(id);
    if (frame?.type === 'proactive.reply.ack') this.acknowledged.push(String(frame.payload.client_msg_id));
    if (own.wire.length === 0) for (const probe of own.probes.splice(0)) probe.answered();
  }

  receiveAll(): void {
    while (this.connection && (this.connection.wire.length > 0 || this.connection.probes.length > 0)) this.receive();
  }

  /** Replies on its connection. Resolves once the relay has stored it. */
  async reply(id: string, text: string, rest: Record<string, unknown> = {}): Promise<void> {
    const own = this.connection;
    if (own) await this.world[own.side].phone.reply(own.link, { message_id: id, text, ...rest }, id);
  }

  /** Its socket outlives a sleep of the edge. */
  restore(): void {
    const own = this.connection;
    if (own?.side === 'edge') {
      own.probes = [];
      this.world.edge.phone.restore(own.link);
    }
    this.world.edge.phone.restored();
  }
}

/** Home and edge in step, with a device of home. */
export async function openWithDevice(): Promise<{ world: World; device: Device }> {
  const world = await World.open();
  const device = new Device(world);
  await world.settle();
  return { world, device };
}

/** Takes the replies that wait at a side. */
export async function readReplies(world: World, side: 'home' | 'edge'): Promise<[id: string, text: string][]> {
  const { replies, sent } = await world[side].phone.poll({ timeout: 0 });
  sent(true);
  return replies.map(({ message_id, text }) => [message_id, text]);
}
