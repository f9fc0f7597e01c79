import type { MediaKeys } from '../../../lib/companion/link/sealed-media.ts';
import { createSealing, type SealedItem, type Sealing } from '../../../lib/companion/link/sealing.ts';
import type { Pairing } from '../../../lib/companion/link/settings.ts';
import type { PhoneLink } from '../../../lib/phone/phone.ts';
import { hashOfShown, shownOf } from '../../../lib/phone/shown.ts';
import type { Message, Payload } from '../../../lib/socket/envelope.ts';
import type { PhoneMessage } from '../../../storage/schema.ts';
import type { World } from './world.ts';

type Side = 'home' | 'edge';

/** A device of home with the keys of the sealed mailbox, by the code of the companion. */
export class SealedDevice {
  readonly #world: World;
  readonly id: string;
  readonly family: string;
  /** What its owner sees. */
  readonly shown: Payload[] = [];
  readonly acknowledged: string[] = [];
  #pairing: Pairing | null = null;
  #sealing!: Sealing;
  #link: PhoneLink | undefined;
  #side: Side = 'home';
  #sendPlainly: (channel: string, type: string, payload: Payload, id?: string) => void = () => {};
  #send: (channel: string, type: string, payload: Payload, id?: string) => void = () => {};
  /** Replies under way to a relay. */
  #sent: Promise<void>[] = [];

  private constructor(world: World, id: string, family: string) {
    this.#world = world;
    this.id = id;
    this.family = family;
    this.install();
  }

  /** Pairs at home, and takes its credentials for the edge. */
  static async pair(world: World, id: string): Promise<SealedDevice> {
    const { family } = await world.pair(id);
    const device = new SealedDevice(world, id, family);
    await world.settle();
    const session = world.home.sessions.byFamily(family);
    if (session) world.home.mirror.mailbox(session)?.onDelivered();
    return device;
  }

  /** As after the program was installed anew under the same pairing: without its keys. */
  install(): void {
    this.#pairing = null;
    const store = { deviceId: this.id, pairing: () => this.#pairing };
    this.#sealing = createSealing({ store, log: this.#world.log });
  }

  /** Shows home its key, and hears home's. */
  async authenticate(): Promise<void> {
    const session = this.#world.home.sessions.byFamily(this.family);
    if (!session) throw new Error('the session is over');
    const { box_key: key } = await this.#sealing.authMember(false);
    const given = this.#world.home.mirror.box(session, String(key));
    this.#pairing = { ...(await this.#sealing.taken(given, [], false)) } as Pairing;
    await this.#world.home.mirror.boxKnown(session, await this.#sealing.homeKeyId());
    await this.#sealing.again((message) => this.#deliver(message));
  }

  /** Authenticates at home without a key, as an earlier version does. */
  authenticatePlainly(): void {
    const session = this.#world.home.sessions.byFamily(this.family);
    if (session) this.#world.home.mirror.box(session, undefined);
  }

  /** What it can read of the history of the edge. */
  history(): Promise<(SealedItem & { text: string })[]> {
    const { items } = this.#world.edge.phone.history({ since: 0, limit: 200 });
    return Promise.all(items.map((item) => this.#sealing.openItem<SealedItem & { text: string }>(item)));
  }

  /** For what it uploads at the edge. */
  async mediaKeys(): Promise<MediaKeys> {
    const keys = await this.#sealing.keys();
    if (!keys) throw new Error('home has given no key');
    return { ...keys, deviceId: this.id };
  }

  connect(side: Side): void {
    this.disconnect();
    const { phone } = this.#world[side];
    const session = this.#world[side].sessions.byFamily(this.family);
    if (!session) throw new Error(`no session at the ${side}`);
    const send = (channel: string, type: string, payload: Payload, id = 'r') => {
      if (type === 'proactive.reply') this.#sent.push(phone.reply(link, payload, id));
      if (channel === 'notifications') this.#world[side].notifications.post(payload);
    };
    const guard = this.#sealing.guard({ send, deliver: (message) => this.#deliver(message) });
    this.#sendPlainly = send;
    this.#send = side === 'edge' ? guard.send : send;
    const link: PhoneLink = {
      id: `socket-${this.id}-${side}`,
      session,
      isWritable: true,
      send: (channel, type, payload, id = '') => {
        const message = { channel, type, id, payload: structuredClone(payload), badPayload: false };
        if (side === 'edge') guard.receive(message);
        else this.#deliver(message);
      },
      probe: (answered) => void setTimeout(answered, 0),
    };
    this.#link = link;
    this.#side = side;
    phone.subscribe(link, 's');
  }

  disconnect(): void {
    if (this.#link) this.#world[this.#side].phone.ended(this.#link);
    this.#link = undefined;
  }

  /** `isPlain`: as a version that puts no seal beside a plain reply. */
  reply(id: string, text: string, { isPlain, ...rest }: Payload & { isPlain?: boolean } = {}): void {
    const asked = this.shown.findLast(({ message_id }) => message_id === rest.reply_to) as PhoneMessage | undefined;
    const shown = asked && hashOfShown(shownOf(asked));
    const send = isPlain ? this.#sendPlainly : this.#send;
    send('proactive', 'proactive.reply', { message_id: id, text, ts: 1, shown, ...rest }, id);
  }

  notify(payload: Payload): void {
    this.#send('notifications', 'notification.posted', payload);
  }

  #deliver({ type, payload }: Message): void {
    if (type === 'phone.message') this.shown.push(payload);
    if (type === 'proactive.reply.ack') this.acknowledged.push(String(payload.client_msg_id));
  }
}
