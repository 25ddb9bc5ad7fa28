// The tools of ../wit/typed.wit in JavaScript, for componentize-js. Nothing here knows of Honeycomb.

import { getDirectories } from 'wasi:filesystem/preopens@0.2.12';

export function greet(name) {
  return `Hello, ${name}!`;
}

export function a23456789B23456789C23456789D23456789E23456789F23456789G23456789H23456789I23456789J23456789K23456789L23456789M23456789() {
  return true;
}

const STEPS = { north: [0, 1], east: [1, 0], south: [0, -1], west: [-1, 0] };

export const shapes = {
  movePoint({ x, y, label }, direction, distance) {
    const [dx, dy] = STEPS[direction];
    return { x: x + dx * distance, y: y + dy * distance, label };
  },

  area(shape) {
    if (shape.tag === 'circle') return Math.PI * shape.val ** 2;
    if (shape.tag === 'empty') return 0;
    const corners = shape.val;
    if (corners.length < 3) throw `a polygon has at least 3 corners, not ${corners.length}`;
    const twice = corners.reduce((sum, a, at) => {
      const b = corners[(at + 1) % corners.length];
      return sum + a.x * b.y - b.x * a.y;
    }, 0);
    return Math.abs(twice) / 2;
  },

  bounds(points) {
    if (points.length === 0) return undefined;
    const xs = points.map((point) => point.x);
    const ys = points.map((point) => point.y);
    return [
      { x: Math.min(...xs), y: Math.min(...ys) },
      { x: Math.max(...xs), y: Math.max(...ys) },
    ];
  },

  invert({ read, write, execute }) {
    return { read: !read, write: !write, execute: !execute };
  },

  divide(dividend, divisor) {
    if (divisor === 0n) throw { tag: 'by-zero' };
    const quotient = dividend / divisor;
    if (quotient > 2n ** 63n - 1n) throw { tag: 'overflow', val: dividend };
    return quotient;
  },
};

export const data = {
  reverse(data) {
    return data.slice().reverse();
  },

  extremes() {
    return [2n ** 64n - 1n, -(2n ** 63n)];
  },

  count(text) {
    const counts = new Map();
    for (const char of text) counts.set(char, (counts.get(char) ?? 0) + 1);
    return [...counts];
  },

  notANumber() {
    return NaN;
  },

  nested(value) {
    return value;
  },
};

export const outside = {
  async fetch(url) {
    let response;
    try {
      response = await fetch(url, { headers: { accept: 'text/plain' } });
    } catch (error) {
      throw `the request failed: ${error}`;
    }
    return { status: response.status, body: await response.text() };
  },

  readFile(path) {
    try {
      const [directory, name] = resolve(path);
      const file = directory.openAt({ symlinkFollow: true }, name, {}, { read: true });
      const { size } = file.stat();
      const [bytes] = file.read(size, 0n);
      return new TextDecoder().decode(bytes);
    } catch (error) {
      throw explain(path, error);
    }
  },

  writeFile(path, text) {
    try {
      const [directory, name] = resolve(path);
      const file = directory.openAt({ symlinkFollow: true }, name, { create: true, truncate: true }, { write: true });
      file.write(new TextEncoder().encode(text), 0n);
    } catch (error) {
      throw explain(path, error);
    }
  },
};

// The granted directory that a path is in, and the rest of the path.
function resolve(path) {
  for (const [directory, name] of getDirectories()) {
    const prefix = name.endsWith('/') ? name : `${name}/`;
    if (path.startsWith(prefix)) return [directory, path.slice(prefix.length)];
  }
  throw 'no-entry';
}

function explain(path, error) {
  return `${path}: ${error.payload ?? error}`;
}
