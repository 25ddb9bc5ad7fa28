"""The tools of ../wit/typed.wit in Python, for componentize-py. Nothing here knows of Honeycomb."""

import math
from urllib.parse import urlsplit

import wit_world
from componentize_py_types import Err, Ok, Some
from wit_world.exports import outside, shapes
from wit_world.imports import outgoing_handler
from wit_world.imports.streams import StreamError_Closed
from wit_world.imports.wasi_http_types import Fields, IncomingBody, OutgoingRequest, Scheme_Http, Scheme_Https


class WitWorld(wit_world.WitWorld):
    def greet(self, name):
        return f"Hello, {name}!"

    def a23456789_b23456789_c23456789_d23456789_e23456789_f23456789_g23456789_h23456789_i23456789_j23456789_k23456789_l23456789_m23456789(self):
        return True


class Shapes:
    def move_point(self, point, direction, distance):
        dx, dy = {
            shapes.Direction.NORTH: (0, 1),
            shapes.Direction.EAST: (1, 0),
            shapes.Direction.SOUTH: (0, -1),
            shapes.Direction.WEST: (-1, 0),
        }[direction]
        return shapes.Point(point.x + dx * distance, point.y + dy * distance, point.label)

    def area(self, shape):
        if isinstance(shape, shapes.Shape_Circle):
            return math.pi * shape.value**2
        if isinstance(shape, shapes.Shape_Empty):
            return 0.0
        corners = shape.value
        if len(corners) < 3:
            raise Err(f"a polygon has at least 3 corners, not {len(corners)}")
        pairs = zip(corners, corners[1:] + corners[:1])
        return abs(sum(a.x * b.y - b.x * a.y for a, b in pairs)) / 2

    def bounds(self, points):
        if not points:
            return None
        xs, ys = [p.x for p in points], [p.y for p in points]
        return shapes.Point(min(xs), min(ys), None), shapes.Point(max(xs), max(ys), None)

    def invert(self, permissions):
        every = shapes.Permissions.READ | shapes.Permissions.WRITE | shapes.Permissions.EXECUTE
        return every & ~permissions

    def divide(self, dividend, divisor):
        if divisor == 0:
            raise Err(shapes.DivisionError_ByZero())
        quotient = abs(dividend) // abs(divisor)
        quotient = quotient if (dividend < 0) == (divisor < 0) else -quotient
        if quotient > 2**63 - 1:
            raise Err(shapes.DivisionError_Overflow(dividend))
        return quotient


class Data:
    def reverse(self, data):
        return data[::-1]

    def extremes(self):
        return 2**64 - 1, -(2**63)

    def count(self, text):
        counts = {}
        for char in text:
            counts[char] = counts.get(char, 0) + 1
        return list(counts.items())

    def not_a_number(self):
        return math.nan

    def nested(self, value):
        return value


class Outside:
    def fetch(self, url):
        parts = urlsplit(url)
        request = OutgoingRequest(Fields.from_list([("accept", b"text/plain")]))
        request.set_scheme(Scheme_Https() if parts.scheme == "https" else Scheme_Http())
        request.set_authority(parts.netloc)
        request.set_path_with_query((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        try:
            future = outgoing_handler.handle(request, None)
        except Err as error:
            raise Err(f"the request was refused: {error.value}")
        future.subscribe().block()
        outcome = future.get()
        if not (isinstance(outcome, Ok) and isinstance(outcome.value, Ok)):
            raise Err(f"the request failed: {outcome.value.value}")
        response = outcome.value.value
        return outside.Answer(response.status(), read(response.consume()).decode())

    def read_file(self, path):
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            raise Err(str(error))

    def write_file(self, path, text):
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise Err(str(error))


def read(body):
    """All bytes of a body."""
    chunks = []
    with body.stream() as stream:
        while True:
            try:
                chunks.append(stream.blocking_read(64 * 1024))
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    break
                raise
    IncomingBody.finish(body)
    return b"".join(chunks)
