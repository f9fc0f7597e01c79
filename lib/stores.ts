import type { Storage, StorageValue } from 'unstorage';

/** What the relay needs of `storage/`: a named store at a time. */
export interface StoreOpener {
  open<T extends StorageValue>(
    name:
      | 'sessions'
      | 'pairing'
      | 'sockets'
      | 'bridge'
      | 'desktop'
      | 'media'
      | 'phone'
      | 'phone-replies'
      | 'phone-subscribers',
  ): Storage<T>;
  /** Whether what is written survives the process. */
  readonly durable: boolean;
}
